"""Rewards in a training with the real package trl and a tiny model made here."""

import pytest

import metric_oracle as mo

pytest.importorskip("trl", reason="trl is not installed: nox -s trl")
pytestmark = pytest.mark.filterwarnings("ignore")  # of packages that are not ours

WORDS = ["<pad>", "<end>", "<unknown>", "no", "mild", "edema", "effusion", "left", "clear", "report", "capital"]


@pytest.fixture
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unknown>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>", padding_side="left"
    )


@pytest.fixture
def model(tokenizer):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(WORDS), n_positions=64, n_embd=16, n_layer=1, n_head=2, eos_token_id=1, pad_token_id=0
    )
    return GPT2LMHeadModel(config)


def test_rewards_in_a_training(model, tokenizer, tmp_path):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    calls = []

    def watched(reward):
        def asked(prompts, completions, **columns):
            found = reward(prompts=prompts, completions=completions, **columns)
            calls.append((reward.__name__, list(prompts), list(completions), dict(columns), found))
            return found

        asked.__name__ = reward.__name__
        return asked

    rows = [
        {"prompt": "report", "ground_truth": "no edema", "study": "a"},
        {"prompt": "report left", "ground_truth": "mild left effusion", "study": "b"},
        {"prompt": "capital", "ground_truth": None, "study": "c"},
    ]
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[watched(mo.reward("rouge-l")), watched(mo.consensus_reward("bleu", column="study"))],
        args=GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=3,
            per_device_train_batch_size=12,
            num_generations=4,
            max_completion_length=6,
            learning_rate=1e-3,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    trainer.train()
    assert trainer.state.global_step == 3
    assert [call[0] for call in calls] == ["rouge-l", "consensus bleu-2"] * 3
    for name, prompts, completions, columns, found in calls:
        assert len(prompts) == len(completions) == len(found) == 12
        for place, value in enumerate(found):
            study = columns["study"][place]
            if name == "rouge-l" and study == "c":
                assert value is None
            elif name == "rouge-l":
                truth = columns["ground_truth"][place]
                assert value == mo.pairwise([completions[place]], "rouge-l", [truth])[0, 0]
            else:
                group = [i for i, other in enumerate(columns["study"]) if other == study]
                matrix = mo.pairwise([completions[i] for i in group], "bleu")
                own = group.index(place)
                others = [x for i, x in enumerate(matrix[own]) if i != own]
                assert value == pytest.approx(sum(others) / 3, abs=1e-12)
    assert any((before[name] != value).any() for name, value in model.named_parameters())
