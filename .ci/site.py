"""A hook of MkDocs: writes llms.txt into the site, for language models: pages, titles and first paragraphs."""

import re
from pathlib import Path
from typing import Any

LINES: list[str] = []


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Keep the line of a page, in the order of the site."""
    title, _, rest = markdown.partition("\n")
    paragraphs = (" ".join(part.split()) for part in rest.split("\n\n"))
    text = next((part for part in paragraphs if re.match(r"(\w|\*\*|`(?!``))", part)), "")
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).rstrip(":")
    LINES.append(f"- [{title.lstrip('# ')}]({page.url}): {text}")


def on_post_build(config: Any) -> None:
    """Write the lines next to the pages."""
    head = f"# {config['site_name']}\n\n> {config['site_description']}\n\n"
    Path(config["site_dir"], "llms.txt").write_text(head + "\n".join(LINES) + "\n", encoding="utf-8")
    LINES.clear()
