"""What a llama-server's command line means for its caches (`lswap.core.kv_command`)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lswap.core.command import split
from lswap.core.kv_command import ServerCommand, is_llama_server, read_command


def read(command: str, **environment: str) -> ServerCommand:
    """A command line, understood."""
    return read_command(split(command), environment)


class EngineTests(SynchronousTestCase):
    """Whether a command starts a llama-server."""

    def test_by_the_name_of_its_program(self) -> None:
        """The folder and `.exe` do not matter; a wrapper is none."""
        for words, expected in (
            (["llama-server", "-m", "x"], True),
            (["/opt/llama.cpp/llama-server"], True),
            (["C:\\llama\\llama-server.exe"], True),
            (["docker", "run", "llama-server"], False),
            (["my-llama-server"], False),
            (["vllm"], False),
            ([], False),
        ):
            self.assertEqual(is_llama_server(words, None), expected, words)

    def test_because_the_configuration_says_so(self) -> None:
        """`engine` counts whatever the command looks like."""
        self.assertTrue(is_llama_server(["docker", "run", "image"], "llama-server"))


class DependsTests(SynchronousTestCase):
    """What a cache depends on."""

    def test_not_on_address_and_keys(self) -> None:
        """Port, host, keys and tokens are left out; no record may show the latter."""
        command = read(
            "llama-server --port 5800 --host 0.0.0.0 -m a.gguf --api-key geheim,two --hf-token secret -c 4096",
            LLAMA_ARG_PORT="5800",
            LLAMA_ARG_HOST="::",
            LLAMA_ARG_API_KEY="geheim",
            LLAMA_ARG_CTX_SIZE="99",
            PATH="/bin",
        )
        self.assertEqual(command.words, ("llama-server", "-m", "a.gguf", "-c", "4096"))
        self.assertEqual(command.variables, {"LLAMA_ARG_CTX_SIZE": "99"})
        self.assertEqual(command.api_key, "geheim")
        self.assertNotIn("geheim", repr(command))

    def test_order_of_other_words_counts(self) -> None:
        """What is not understood is part of it as it stands."""
        self.assertNotEqual(read("llama-server -x 1 -y").words, read("llama-server -y -x 1").words)

    def test_names_with_underscores(self) -> None:
        """llama.cpp takes `_` for `-` in long names."""
        command = read("llama-server --slot_save_path /s --api_key k --port 1")
        self.assertEqual((command.save_path, command.api_key), ("/s", "k"))
        self.assertNotIn("k", command.words)

    def test_files(self) -> None:
        """Model, projector, adapters and control vectors, each once; factors behind names are no part of them."""
        command = read(
            "llama-server --model old.gguf -m a.gguf --mmproj p.gguf --lora l1.gguf,l2.gguf --lora l1.gguf "
            "--lora-scaled l3.gguf:0.5 --control-vector-scaled v.gguf 1.5"
        )
        self.assertEqual(command.files, ("a.gguf", "p.gguf", "l1.gguf", "l2.gguf", "l3.gguf", "v.gguf"))
        self.assertTrue(command.names_model)

    def test_model_out_of_the_environment(self) -> None:
        """llama-server takes its options from there too; the command line wins."""
        self.assertEqual(read("llama-server", LLAMA_ARG_MODEL="e.gguf").files, ("e.gguf",))
        self.assertEqual(read("llama-server -m a.gguf", LLAMA_ARG_MODEL="e.gguf").files, ("a.gguf",))
        self.assertEqual(read("llama-server", LLAMA_ARG_MMPROJ="p.gguf").files, ("p.gguf",))
        self.assertEqual(read("llama-server", LLAMA_API_KEY="k1,k2").api_key, "k1")

    def test_model_that_only_the_server_knows(self) -> None:
        """With `-hf` no file is named."""
        command = read("llama-server -hf org/model")
        self.assertEqual((command.files, command.names_model), ((), False))

    def test_all_shards(self) -> None:
        """A model that was cut into files is all of them; a number of shards that cannot be is not believed."""
        self.assertEqual(
            read("llama-server -m d/x-00001-of-00003.gguf").files,
            ("d/x-00001-of-00003.gguf", "d/x-00002-of-00003.gguf", "d/x-00003-of-00003.gguf"),
        )
        self.assertEqual(len(read("llama-server -m x-00001-of-99999.gguf").files), 999)
        self.assertEqual(read("llama-server -m x-00001-of-00000.gguf").files, ("x-00001-of-00000.gguf",))

    def test_option_without_its_value(self) -> None:
        """A command that ends too early is the server's business."""
        command = read("llama-server --port")
        self.assertEqual(command.words, ("llama-server", "--port"))
        self.assertEqual(read("llama-server -m").files, ())

    def test_folder_for_slots_of_its_own(self) -> None:
        """It is found, and is part of what the cache depends on."""
        command = read("llama-server --slot-save-path /mine")
        self.assertEqual(command.save_path, "/mine")
        self.assertIn("/mine", command.words)
        self.assertIsNone(read("llama-server").save_path)
