"""Make `radgraph_annotations.json`: what the `radgraph` package itself finds in invented reports, with tiny archives.

    pip install torch==2.13.0 transformers==4.57.6 radgraph==0.1.18
    python tests/golden/make_radgraph_annotations.py

The archives are those of `tests/encoders/tiny_radgraph.py`: the published format with random weights, one for each
model type. The package reads them extracted, from its cache folder, and runs unpatched; transformers 5 it does not
survive. Hashes of the weights tell that a test runs on the same ones.
"""

import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path

OUT = Path(__file__).with_name("radgraph_annotations.json")
TINY = Path(__file__).parents[1] / "encoders" / "tiny_radgraph.py"

LONG = (
    "The heart is normal in size and the mediastinum is stable. There is mild edema in the left lung base, no pleural "
    "effusion on the right. Opacity of the right lung without pneumothorax. The tip of the tube is in normal position. "
)
TEXTS = [
    "No acute cardiopulmonary process.",
    "Left-sided pleural effusion, mild; lungs are otherwise clear (stable). Heart size is normal: no edema?",
    "",
    "None",
    "The tip of the tube is 2.5cm above the carina (prior: 1.9cm).\nNo pneumothorax/effusion!",
    'Opacity at the right base, 50%. "Stable"/. or /? since ___ [SEP] [MASK] today.',
    "Ödem of the left lüng, Herz 肺 normal \u200b \u200b and stable\u00a0lungs \U0001fa7b.",
    "pneumothorax" * 12 + " right.",
    "Edema",
    "  edema \t\r\n of  the lung  ",
    'Literal \\n newline, \\f feed and \\u2122 mark: \\"clear\\" lungs.',
    "Fluid (100%) and 5%, 6%. No change.' End).",
    "\u200b",
    "No acute cardiopulmonary process.",
    "RIGHT LUNG CLEAR. Right lung clear.",
    "Mild cardiomegaly with pleural effusion at both bases, left larger than right, and mild pulmonary edema.",
    "1. Heart size normal.\n2. Lungs clear.\n3. No effusion / no pneumothorax.",
    "The heart is normal in size. The mediastinum is stable. The lungs are clear, with no mild edema. There is no "
    "pleural effusion and no pneumothorax. The tube is in place, its tip at the level of the carina.",
    LONG * 12,
]


def main() -> None:
    """Write the golden file."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from radgraph import RadGraph

    spec = importlib.util.spec_from_file_location("tiny_radgraph", TINY)
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    weights, annotations = {}, {}
    with tempfile.TemporaryDirectory() as name:
        # The package finds the transformer by its name, as a folder.
        os.chdir(name)
        for model_type in tiny.TYPES:
            encoder = tiny.write_encoder(Path("tiny") / model_type, model_type)
            for file, content in tiny.files_of(model_type, encoder, str(encoder)).items():
                path = Path("models", model_type, file)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            weights[model_type] = tiny.hash_of(tiny.weights_of(model_type, encoder))
            annotations[model_type] = RadGraph(model_type=model_type, model_cache_dir="models", cuda=-1)(TEXTS)
    versions = ", ".join(f"{tool} {importlib.metadata.version(tool)}" for tool in ("radgraph", "transformers", "torch"))
    head = {"tool": f"{versions}, Python {sys.version.split()[0]}", "script": Path(__file__).name, "weights": weights}
    with OUT.open("w", encoding="utf-8") as file:
        file.write(json.dumps(head)[:-1] + ',\n"texts": [\n')
        file.write(",\n".join(map(json.dumps, TEXTS)) + '\n],\n"annotations": {\n')
        blocks = []
        for model_type, graphs in annotations.items():
            lines = (f'"{key}": {json.dumps(graph, separators=(",", ":"))}' for key, graph in graphs.items())
            blocks.append(f'"{model_type}": {{\n' + ",\n".join(lines) + "\n}")
        file.write(",\n".join(blocks) + "\n}}\n")


if __name__ == "__main__":
    main()
