# SPDX-License-Identifier: Apache-2.0

"""An editor: a client of yaml-language-server over its standard input and output."""

import json
import os
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]

# The longest wait for one answer, in seconds.
TIMEOUT = 60

MODELINE = "# yaml-language-server: $schema=tidegate.schema.json\n"


def program(name: str) -> str:
    """The path of a program: `cargo xtask editor` names it in a variable."""
    variable = f"TIDEGATE_{name.upper()}"
    assert variable in os.environ, f"{variable} is not set: run `cargo xtask editor`"
    return os.environ[variable]


def schema() -> str:
    """The schema, as `tidegate config schema` prints it."""
    command = [program("binary"), "config", "schema"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Editor:
    """A language server, and the files that are open in it."""

    def __init__(self, folder: Path) -> None:
        """Writes the schema into `folder`, where all files are, and starts the server."""
        self.folder = folder
        (folder / "tidegate.schema.json").write_text(schema())
        self._numbers = 0
        self._version = 0
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._diagnostics: dict[str, list[dict[str, Any]]] = {}

    def __enter__(self) -> "Editor":
        self._log = (self.folder / "server.log").open("wb")
        self._process = subprocess.Popen(
            [program("node"), program("yaml_server"), "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            self._initialize()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._log.close()

    def _initialize(self) -> None:
        capabilities = {
            "workspace": {"configuration": True},
            "textDocument": {
                "completion": {"completionItem": {"documentationFormat": ["markdown"]}},
                "hover": {"contentFormat": ["markdown"]},
                "publishDiagnostics": {},
            },
        }
        self._ask(
            "initialize",
            {"processId": os.getpid(), "rootUri": self.folder.as_uri(), "capabilities": capabilities},
        )
        self._tell("initialized", {})

    def diagnostics(self, name: str, text: str) -> list[tuple[int, str]]:
        """Opens a file, and gives the problems that the server finds: lines of the text from 1, and messages."""
        uri = self._open(name, text)
        # The server has nothing to say of a file before it has checked it, and then says it even if there is nothing.
        while uri not in self._diagnostics:
            self._handle(self._next())
        # The server counts from 0, and the comment before the text is one line.
        found = [
            (found["range"]["start"]["line"], found["message"])
            for found in self._diagnostics.pop(uri)
        ]
        self._tell("textDocument/didClose", {"textDocument": {"uri": uri}})
        return sorted(found)

    def completions(self, name: str, text: str) -> list[str]:
        """The labels that the server offers at the mark `|` of a text, in order."""
        answer = self._at_mark("textDocument/completion", name, text)
        items = answer["items"] if isinstance(answer, dict) else answer or []
        return sorted(item["label"] for item in items)

    def hover(self, name: str, text: str) -> str:
        """What the server says of the word at the mark `|` of a text."""
        answer = self._at_mark("textDocument/hover", name, text)
        return answer["contents"]["value"] if answer else ""

    def _at_mark(self, method: str, name: str, text: str) -> Any:
        before, after = text.split("|")
        uri = self._open(name, before + after)
        lines = (MODELINE + before).split("\n")
        position = {"line": len(lines) - 1, "character": len(lines[-1])}
        answer = self._ask(method, {"textDocument": {"uri": uri}, "position": position})
        self._tell("textDocument/didClose", {"textDocument": {"uri": uri}})
        return answer

    def _open(self, name: str, text: str) -> str:
        """Opens a file, with the comment that names the schema."""
        uri = (self.folder / name).as_uri()
        # The server remembers what it has read by the address and the version.
        self._version += 1
        document = {"uri": uri, "languageId": "yaml", "version": self._version, "text": MODELINE + text}
        self._tell("textDocument/didOpen", {"textDocument": document})
        return uri

    def _ask(self, method: str, params: Any) -> Any:
        self._numbers += 1
        number = self._numbers
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = self._next()
            if message.get("id") == number and "method" not in message:
                assert "error" not in message, message
                return message["result"]
            self._handle(message)

    def _tell(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def _handle(self, message: dict[str, Any]) -> None:
        """Takes what the server says or asks by itself."""
        method, params = message.get("method"), message.get("params")
        if method == "textDocument/publishDiagnostics":
            self._diagnostics[params["uri"]] = params["diagnostics"]
        elif method == "workspace/configuration":
            result = [self._setting(item.get("section")) for item in params["items"]]
            self._send({"id": message["id"], "result": result})
        elif "id" in message and method is not None:
            self._send({"id": message["id"], "result": None})

    @staticmethod
    def _setting(section: str | None) -> Any:
        # Nothing is fetched: the tests have no network.
        yaml = {
            "validate": True,
            "hover": True,
            "completion": True,
            "hoverSchemaSource": False,
            "schemaStore": {"enable": False},
            "kubernetesCRDStore": {"enable": False},
        }
        return yaml if section == "yaml" else {}

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        stdin = self._process.stdin
        assert stdin
        stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        stdin.flush()

    def _next(self) -> dict[str, Any]:
        message = self._messages.get(timeout=TIMEOUT)
        assert message is not None, f"the server ended: {(self.folder / 'server.log').read_text()}"
        return message

    def _read(self) -> None:
        """Reads messages until the server ends."""
        stdout = self._process.stdout
        assert stdout
        while True:
            length = 0
            while line := stdout.readline().strip():
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if not length:
                break
            self._messages.put(json.loads(stdout.read(length)))
        self._messages.put(None)
