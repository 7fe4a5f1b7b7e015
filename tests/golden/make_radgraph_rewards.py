"""Make `radgraph_rewards.json`: rewards that the `radgraph` package itself computes for made-up graphs.

    pip download --no-deps --no-binary :all: radgraph==0.1.18 -d FOLDER
    python tests/golden/make_radgraph_rewards.py FOLDER/radgraph-0.1.18.tar.gz

Only `radgraph/rewards.py` of that source archive is run (plain Python without imports), from the archive: nothing of
the package is installed or copied here. The graphs come from `metric_oracle.synthetic.corpus`, with changes that the
grammar never makes: other case, repeated mentions, several relations of one mention, no relation, no entity.

The package's own test prints three means, 0.6238095, 0.5111111 and 0.5011204, over six pairs of texts. Its archive has
no graphs of them, and making them takes the v1 checkpoint, so they are not among these values.
"""

import json
import sys
import tarfile
from pathlib import Path
from random import Random

from metric_oracle.synthetic.corpus import synthesize

VERSION = "0.1.18"
OUT = Path(__file__).with_name("radgraph_rewards.json")


def load_rewards(archive: Path) -> dict:
    """Run the rewards module of the source archive and return its names."""
    with tarfile.open(archive) as tar:
        source = tar.extractfile(f"radgraph-{VERSION}/radgraph/rewards.py").read().decode("utf-8")
    names: dict = {}
    exec(compile(source, "radgraph/rewards.py", "exec"), names)
    return names


def make_graphs() -> list[dict]:
    """Return about eighty graphs as entities with tokens, label and relations."""
    rng = Random(18)
    graphs = []
    for report in synthesize(48, seed=11):
        entities = {
            key: {name: entity[name] for name in ("tokens", "label", "relations")}
            for key, entity in report.graph["entities"].items()
        }
        graphs.append({"entities": entities})
    for graph in rng.sample(graphs, 30):
        changed = json.loads(json.dumps(graph))
        entities = changed["entities"]
        for key in rng.sample(list(entities), min(len(entities), 3)):
            entity = entities[key]
            match rng.randrange(5):
                case 0:
                    entity["tokens"] = entity["tokens"].upper()
                case 1:
                    entity["relations"] = []
                case 2:
                    entity["relations"].append([rng.choice(("modify", "located_at")), rng.choice(list(entities))])
                case 3:
                    entities[str(len(entities) + 1)] = dict(entity)
                case _:
                    entity["label"] = rng.choice(("ANAT-DP", "OBS-DP", "OBS-U", "OBS-DA"))
        graphs.append(changed)
    return [*graphs, {"entities": {}}]


def main() -> None:
    """Write the golden file."""
    rewards = load_rewards(Path(sys.argv[1]))
    graphs = make_graphs()
    rng = Random(19)
    pairs = {(i, i) for i in range(0, len(graphs), 7)} | {(len(graphs) - 1, 3), (3, len(graphs) - 1)}
    while len(pairs) < 900:
        pairs.add((rng.randrange(len(graphs)), rng.randrange(len(graphs))))
    lines = [json.dumps([h, r, *rewards["compute_reward"](graphs[h], graphs[r], "all")]) for h, r in sorted(pairs)]
    with OUT.open("w", encoding="utf-8") as file:
        file.write(f'{{"tool": "radgraph {VERSION}, rewards.compute_reward", "script": "{Path(__file__).name}",\n')
        file.write('"graphs": {\n')
        file.write(",\n".join(f'"g{i}": {json.dumps(graph, separators=(",", ":"))}' for i, graph in enumerate(graphs)))
        file.write('\n},\n"pairs": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
