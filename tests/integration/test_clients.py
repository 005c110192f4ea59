"""Real clients, unchanged: OpenAI's and Anthropic's own, against lswap in front of a stand-in that answers as told.

What they make of lswap's answers is what counts: their types, their error classes, what they try again. The clients in
front of a real llama.cpp server are in `tests.integration.test_demo`.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys
import threading
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.http_model import HttpModel, Reply, Seen, events
from tests.integration.running import LSWAP, Running, until

CONFIG = """
apiKeys:
  - good
  - {{name: poor, key: poor, models: [other]}}
models:
  m:
    cmd: {sleep}
    proxy: http://127.0.0.1:{port}
    aliases: [alias]
  one:
    cmd: {sleep}
    proxy: http://127.0.0.1:{port}
    concurrencyLimit: 1
  dead:
    cmd: {python} -c "raise SystemExit('no such GPU')"
    proxy: http://127.0.0.1:1
groups: {{all: {{swap: false, members: [m, one]}}}}
"""
SLEEP = f'{sys.executable} -c "import time; time.sleep(1000)"'
MESSAGES: Any = [{"role": "user", "content": "Hello"}]
#: In all answers shaped as OpenAI's.
BASE = {"id": "x", "created": 1, "model": "m"}
ENVELOPE = {"error": {"message": "context is too small", "type": "invalid_request_error", "code": "context"}}


def choice(**more: Any) -> dict[str, Any]:
    """One choice of an answer."""
    return {"index": 0, "finish_reason": None, **more}


class ClientCase(SynchronousTestCase):
    """A running lswap whose models are a stand-in of this process; each test starts its own."""

    #: What has to be installed.
    package = ""

    def setUp(self) -> None:
        """Start it; models start with their first request."""
        if importlib.util.find_spec(self.package) is None:
            raise SkipTest(f"{self.package} is not installed")
        folder = pathlib.Path(self.mktemp())
        folder.mkdir()
        self.model = HttpModel()
        self.addCleanup(self.model.close)
        path = folder / "config.yaml"
        path.write_text(CONFIG.format(sleep=SLEEP, python=sys.executable, port=self.model.port))
        self.lswap = Running([*LSWAP, "-config", str(path.resolve())], cwd=folder)
        self.addCleanup(self.lswap.end)
        self.lswap.serving()
        self.url = f"http://127.0.0.1:{self.lswap.port}"


class OpenAITests(ClientCase):
    """OpenAI's client."""

    package = "openai"

    def client(self, key: str = "good", retries: int = 0) -> Any:
        """A client with this key."""
        import openai

        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=retries, timeout=60)
        self.addCleanup(client.close)
        return client

    def test_chat(self) -> None:
        """Plain: the answer as the model gave it; the key is not for the model."""
        message = {"role": "assistant", "content": "Hi."}
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        answer = {**BASE, "object": "chat.completion", "choices": [choice(message=message)], "usage": usage}
        self.model.answers["/v1/chat/completions"] = Reply(answer)
        got = self.client().chat.completions.create(model="m", messages=MESSAGES, extra_headers={"X-Mine": "1"})
        self.assertEqual((got.choices[0].message.content, got.usage.total_tokens), ("Hi.", 5))
        seen = self.model.seen[0]
        self.assertEqual((seen.headers["X-Mine"], seen.headers["Authorization"]), ("1", None))
        self.assertEqual(seen.json, {"model": "m", "messages": MESSAGES})

    def test_stream(self) -> None:
        """The pieces, in order, and the end."""
        words = ["H", "i", "."]
        chunk = {**BASE, "object": "chat.completion.chunk"}
        self.model.answers["/v1/chat/completions"] = events(
            *({**chunk, "choices": [choice(delta={"content": word})]} for word in words), done=True
        )
        stream = self.client().chat.completions.create(model="alias", messages=MESSAGES, stream=True)
        self.assertEqual([part.choices[0].delta.content for part in stream], words)
        self.assertIs(self.model.seen[0].json["stream"], True)

    def test_tools(self) -> None:
        """Tools go to the model as they are; its calls come back, whole and in pieces."""
        tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
        call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": '{"zone": "UTC"}'}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        plain = {**BASE, "object": "chat.completion", "choices": [choice(message=message, finish_reason="tool_calls")]}
        chunk = {**BASE, "object": "chat.completion.chunk"}
        pieces = [
            {"index": 0, "id": "c1", "type": "function", "function": {"name": "now", "arguments": ""}},
            {"index": 0, "function": {"arguments": '{"zone": '}},
            {"index": 0, "function": {"arguments": '"UTC"}'}},
        ]
        streamed = events(*({**chunk, "choices": [choice(delta={"tool_calls": [one]})]} for one in pieces), done=True)
        self.model.answers["/v1/chat/completions"] = lambda seen: streamed if seen.json.get("stream") else Reply(plain)
        ask = self.client().chat.completions.create
        got = ask(model="m", messages=MESSAGES, tools=[tool])
        self.assertEqual(got.choices[0].message.tool_calls[0].function.arguments, '{"zone": "UTC"}')
        self.assertEqual(self.model.seen[0].json["tools"], [tool])
        parts = list(ask(model="m", messages=MESSAGES, tools=[tool], stream=True))
        text = "".join(part.choices[0].delta.tool_calls[0].function.arguments for part in parts)
        self.assertEqual(text, '{"zone": "UTC"}')

    def test_other_texts(self) -> None:
        """Completions and embeddings."""
        client = self.client()
        self.model.answers["/v1/completions"] = Reply(
            {**BASE, "object": "text_completion", "choices": [choice(text="and so on", logprobs=None)]}
        )
        self.assertEqual(client.completions.create(model="m", prompt="one").choices[0].text, "and so on")
        self.model.answers["/v1/embeddings"] = Reply(
            {"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}]}
        )
        got = client.embeddings.create(model="m", input="one", encoding_format="float")
        self.assertEqual(got.data[0].embedding, [0.5, -1.0])

    def test_models(self) -> None:
        """The list, and one record by ID or alias; nothing starts."""
        client = self.client()
        self.assertEqual([model.id for model in client.models.list()], ["dead", "m", "one"])
        self.assertEqual(client.models.retrieve("m").id, "m")
        self.assertEqual(client.models.retrieve("alias").owned_by, "llama-swap")
        self.assertEqual(self.model.seen, [])

    def test_audio(self) -> None:
        """An upload arrives with all its bytes; speech comes back as bytes, whole and streamed."""
        client = self.client()
        sound = bytes(range(256)) * 8000
        self.model.answers["/v1/audio/transcriptions"] = Reply({"text": "a sound"})
        got = client.audio.transcriptions.create(model="m", file=("a.wav", sound, "audio/wav"), language="en")
        self.assertEqual(got.text, "a sound")
        seen = self.model.seen[0]
        self.assertIn(b'filename="a.wav"', seen.body)
        self.assertIn(sound, seen.body)
        self.assertEqual(int(seen.headers["Content-Length"]), len(seen.body))
        self.model.answers["/v1/audio/speech"] = Reply([sound[:70000], sound[70000:]], kind="audio/wav")
        spoken = client.audio.speech.create(model="m", voice="alloy", input="a")
        self.assertEqual(spoken.content, sound)
        with client.audio.speech.with_streaming_response.create(model="m", voice="alloy", input="a") as streamed:
            self.assertEqual(b"".join(streamed.iter_bytes()), sound)

    def test_errors(self) -> None:
        """Each refusal becomes the client's own class, with a text that says what is wrong."""
        import openai

        def problem(kind: type[openai.APIStatusError], model: str = "m", key: str = "good") -> Any:
            with self.assertRaises(kind) as caught:
                self.client(key).chat.completions.create(model=model, messages=MESSAGES)
            return caught.exception

        self.assertIn("no router for requested model", problem(openai.NotFoundError, "nothing").message)
        self.assertIn("API key", problem(openai.AuthenticationError, key="bad").message)
        self.assertIn("does not allow model m", problem(openai.PermissionDeniedError, key="poor").message)
        failed = problem(openai.InternalServerError, "dead")
        self.assertIn("no such GPU", failed.message)
        self.assertEqual(failed.type, "server_error")
        self.model.answers["/v1/chat/completions"] = Reply(ENVELOPE, 400)
        theirs = problem(openai.BadRequestError)
        self.assertEqual((theirs.code, theirs.body["message"]), ("context", "context is too small"))

    def test_cut_stream(self) -> None:
        """An answer that breaks off is an error, never the end of a stream."""
        piece = b"data: " + json.dumps({**BASE, "choices": [choice(delta={"content": "H"})]}).encode() + b"\n\n"
        self.model.answers["/v1/chat/completions"] = Reply([piece], kind="text/event-stream", cut=True)
        stream = self.client().chat.completions.create(model="m", messages=MESSAGES, stream=True)
        came: list[Any] = []
        with self.assertRaises(Exception) as caught:
            for part in stream:
                came.append(part)
        self.assertEqual(len(came), 1)
        self.assertIn(type(caught.exception).__module__.partition(".")[0], ("openai", "httpx", "httpx2"))

    def test_retries(self) -> None:
        """What the client tries again: a model's 503, and lswap's own 429, after the time that this names."""
        import openai

        replies = [Reply({"error": "loading"}, 503), Reply({**BASE, "object": "chat.completion", "choices": []})]
        self.model.answers["/v1/chat/completions"] = lambda _: replies.pop(0)
        self.client(retries=1).chat.completions.create(model="m", messages=MESSAGES)
        self.assertEqual(len(self.model.seen), 2)

        going, enough = threading.Event(), threading.Event()
        self.addCleanup(enough.set)

        def slow(_: Seen) -> Reply:
            going.set()
            enough.wait(30)
            return Reply({**BASE, "object": "chat.completion", "choices": []})

        self.model.answers["/v1/chat/completions"] = slow
        patient, hasty = self.client(retries=8), self.client()
        first = threading.Thread(target=patient.chat.completions.create, kwargs={"model": "one", "messages": MESSAGES})
        first.start()
        self.addCleanup(first.join)
        going.wait(30)
        with self.assertRaises(openai.RateLimitError) as caught:
            hasty.chat.completions.create(model="one", messages=MESSAGES)
        self.assertEqual(
            (caught.exception.code, caught.exception.response.headers["Retry-After"]), ("concurrency_limit", "1")
        )
        threading.Timer(0.2, enough.set).start()
        self.assertEqual(patient.chat.completions.create(model="one", messages=MESSAGES).id, "x")

    def test_client_that_leaves(self) -> None:
        """Closing a stream ends the request at the model, too."""
        gone = threading.Event()

        def endless(_: Seen) -> Reply:
            piece = json.dumps({**BASE, "choices": [choice(delta={"content": "H"})]}).encode()

            def pieces() -> Any:
                try:
                    while True:
                        yield b"data: " + piece + b"\n\n"
                finally:
                    gone.set()

            return Reply(pieces(), kind="text/event-stream")

        self.model.answers["/v1/chat/completions"] = endless
        stream = self.client().chat.completions.create(model="m", messages=MESSAGES, stream=True)
        self.assertEqual(next(iter(stream)).choices[0].delta.content, "H")
        stream.close()
        until(gone.is_set, 10, "the end of the request at the model")


class AnthropicTests(ClientCase):
    """Anthropic's client."""

    package = "anthropic"

    def client(self, key: str = "good", retries: int = 0) -> Any:
        """A client with this key, which it sends as `x-api-key`."""
        import anthropic

        client = anthropic.Anthropic(base_url=self.url, api_key=key, max_retries=retries, timeout=60)
        self.addCleanup(client.close)
        return client

    def ask(self, client: Any, model: str = "m", **more: Any) -> Any:
        """A message."""
        return client.messages.create(model=model, max_tokens=20, messages=MESSAGES, **more)

    def answer(self, content: list[Any], **more: Any) -> dict[str, Any]:
        """A message of the model."""
        usage = {"input_tokens": 9, "output_tokens": 2}
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
        return {**head, "content": content, "stop_reason": "end_turn", "usage": usage, **more}

    def test_messages(self) -> None:
        """Plain, with a tool, and the count of tokens; headers of the client arrive, its key does not."""
        client = self.client()
        used = {"type": "tool_use", "id": "t1", "name": "now", "input": {"zone": "UTC"}}
        self.model.answers["/v1/messages"] = Reply(self.answer([{"type": "text", "text": "Hi."}, used]))
        tool: Any = {"name": "now", "input_schema": {"type": "object", "properties": {}}}
        got = self.ask(client, "alias", tools=[tool])
        self.assertEqual(
            (got.content[0].text, got.content[1].input, got.usage.input_tokens), ("Hi.", {"zone": "UTC"}, 9)
        )
        seen = self.model.seen[0]
        self.assertEqual((seen.json["tools"], seen.headers["x-api-key"]), ([tool], None))
        self.assertTrue(seen.headers["anthropic-version"])
        self.model.answers["/v1/messages/count_tokens"] = Reply({"input_tokens": 14})
        self.assertEqual(client.messages.count_tokens(model="m", messages=MESSAGES).input_tokens, 14)

    def test_stream(self) -> None:
        """Named events, put together by the client; and the row of activity has their tokens."""
        start = self.answer([], stop_reason=None, usage={"input_tokens": 9, "output_tokens": 1})
        self.model.answers["/v1/messages"] = events(
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "ping"},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "H"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "i."}},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 2},
            },
            {"type": "message_stop"},
            named=True,
        )
        client = self.client()
        with client.messages.stream(model="m", max_tokens=20, messages=MESSAGES) as stream:
            self.assertEqual(list(stream.text_stream), ["H", "i."])
            self.assertEqual(stream.get_final_message().usage.output_tokens, 2)
        rows = client.get("/api/metrics/activity", cast_to=object)["data"]
        self.assertEqual((rows[0]["tokens"]["input_tokens"], rows[0]["tokens"]["output_tokens"]), (9, 2))

    def test_errors(self) -> None:
        """Each refusal becomes the client's own class, with a text that says what is wrong."""
        import anthropic

        def problem(kind: type[anthropic.APIStatusError], model: str = "m", key: str = "good") -> Any:
            with self.assertRaises(kind) as caught:
                self.ask(self.client(key), model)
            return caught.exception

        self.assertIn("no router for requested model", str(problem(anthropic.NotFoundError, "nothing")))
        self.assertIn("API key", str(problem(anthropic.AuthenticationError, key="bad")))
        self.assertIn("does not allow model m", str(problem(anthropic.PermissionDeniedError, key="poor")))
        self.assertIn("no such GPU", str(problem(anthropic.InternalServerError, "dead")))
        theirs = {"type": "error", "error": {"type": "overloaded_error", "message": "too much to do"}}
        self.model.answers["/v1/messages"] = Reply(theirs, 529)
        self.assertIn("too much to do", str(problem(anthropic.APIStatusError)))
        self.assertEqual(self.model.seen[-1].path, "/v1/messages")

    def test_retries(self) -> None:
        """The client tries a model's 529 again, and gets its answer."""
        replies = [Reply({"type": "error"}, 529), Reply(self.answer([{"type": "text", "text": "Hi."}]))]
        self.model.answers["/v1/messages"] = lambda _: replies.pop(0)
        self.assertEqual(self.ask(self.client(retries=1)).content[0].text, "Hi.")
        self.assertEqual(len(self.model.seen), 2)
