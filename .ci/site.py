"""A hook of MkDocs: writes two files for language models into the site, both made of its pages.

``llms.txt`` lists the pages with their first paragraphs. ``skills/metric-oracle/SKILL.md`` tells an agent when to use
the package, what to install, which commands do which job, and which rules a number must follow.
"""

import re
from pathlib import Path
from typing import Any

PAGES: dict[str, tuple[str, str]] = {}  # address and text of each page, by its path, in the order of the site
SKILL = """\
---
name: metric-oracle
description: >-
  Scores generated radiology reports against references (BLEU, ROUGE-L, CIDEr-D, METEOR, RadGraph F1, CheXbert,
  RaTEScore, BERTScore, RadCliQ), makes tables with confidence intervals, finds for each test report the best report
  of a training corpus under a metric (the metric oracle), mines training pairs, and checks models for copies. Use
  it when someone evaluates or compares models that write or retrieve radiology reports, or asks for baselines,
  ceilings, rewards or agreement with radiologists.
---

# metric-oracle

{about}

{install}

Extras and their packages: `index.html`. Command line: `oracle COMMAND --help`; Python: `import metric_oracle as mo`.

## How to work with it

- Reports are patient data. Nothing leaves the machine; do not print reports, and do not send them to another service.
- Errors are one line with the next step, and exit code 2. Do what they say; do not guess ids, columns or sections.
- Results (`--out`) are Parquet, CSV or JSON Lines. Copy the signature below a table together with its numbers.
- Try a command on made-up files first: `oracle example try && cd try`.

## Jobs

All steps run as printed on the files of `oracle example try`. Replace the files by your own.

{jobs}
## Rules for numbers

{rules}
## Pages

{pages}"""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Keep a page."""
    PAGES[page.file.src_uri] = (page.url, markdown)


def on_post_build(config: Any) -> None:
    """Write the files next to the pages."""
    site = Path(config["site_dir"])
    head = f"# {config['site_name']}\n\n> {config['site_description']}\n\n"
    lines = [f"- [{title(text)}]({address}): {first_paragraph(text)}\n" for address, text in PAGES.values()]
    (site / "llms.txt").write_text(head + "".join(lines), encoding="utf-8")
    skill = site / "skills/metric-oracle/SKILL.md"
    skill.parent.mkdir(parents=True, exist_ok=True)
    skill.write_text(skill_of({name: text for name, (_, text) in PAGES.items()}), encoding="utf-8")
    PAGES.clear()


def skill_of(pages: dict[str, str]) -> str:
    """Return the skill file of the texts of pages."""
    jobs = [
        f"### {title(text)}\n\n{first_paragraph(text)}\n\n{steps_of(text)}"
        for name, text in pages.items()
        if name.startswith("cookbook/") and name != "cookbook/index.md"
    ]
    # The paragraphs of docs/which-number.md that begin in bold, and of each its first two sentences.
    bold = [part for part in paragraphs(pages["which-number.md"]) if part.startswith("**")]
    rules = ["- " + " ".join(re.split(r"(?<=[.?:*]) (?=[A-Z`])", part)[:3]) + "\n" for part in bold]
    (install,) = re.findall(r"^## Install\n\n(.*?^```\n)", pages["index.md"], re.MULTILINE | re.DOTALL)
    return SKILL.format(
        about=first_paragraph(pages["index.md"]),
        install=install.strip(),
        jobs="".join(jobs),
        rules="".join(rules),
        pages="".join(f"- {title(text)}: `{name.removesuffix('.md')}.html`\n" for name, text in pages.items()),
    )


def title(text: str) -> str:
    """Return the title of a page."""
    return text.partition("\n")[0].lstrip("# ")


def first_paragraph(text: str) -> str:
    """Return the first paragraph of a page that is text."""
    texts = (part for part in paragraphs(text) if re.match(r"(\w|\*\*|`(?!``))", part))
    return next(texts, "").rstrip(":")


def paragraphs(text: str) -> list[str]:
    """Return the parts of a page below its title, each in one line and without links."""
    parts = (" ".join(part.split()) for part in text.partition("\n")[2].split("\n\n"))
    return [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", part) for part in parts]


def steps_of(text: str) -> str:
    """Return the blocks of a page without what they print: commands of the package, and Python."""
    steps = []
    for language, source in re.findall(r"^```(bash|sh|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language != "python":
            lines = (" ".join(line.split()) for line in source.replace("\\\n", " ").splitlines())
            source = "".join(f"{line}\n" for line in lines if line.startswith("oracle "))
        if source:
            steps.append(f"```{language.replace('bash', 'sh')}\n{source}```\n\n")
    return "".join(steps)
