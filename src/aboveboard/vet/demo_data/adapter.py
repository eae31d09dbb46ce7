"""Give three Markdown packages one interface: the same document in, an HTML fragment out.

Each is asked for the same dialect (tables and fenced code). They differ in layout, which the comparison ignores.
"""

from typing import Any


def convert(module: Any, text: str) -> Any:
    if module.__name__ == "mistune":
        return module.create_markdown(escape=False, plugins=["table"])(text)
    if module.__name__ == "markdown2":
        return module.markdown(text, extras=["tables", "fenced-code-blocks"])
    return module.markdown(text, extensions=["tables", "fenced_code"])


def run(module: Any, input_path: str, output_path: str) -> None:
    with open(input_path, encoding="utf-8") as stream:
        text = stream.read()
    with open(output_path, "w", encoding="utf-8") as stream:
        stream.write(convert(module, text))
