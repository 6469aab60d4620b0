"""Trainings with TRL and PEFT, with tiny random models and a tokenizer of words."""

from __future__ import annotations

import copy

import torch

from frameworks.public_trainings import SIZES
from frameworks.stacks.fitting import STEPS, fit, sentences
from frameworks.stacks.table import Trained, stack

TRL = {
    "needs": ("torch._dynamo", "transformers.trainer", "peft", "trl.trainer.sft_trainer", "trl.trainer.dpo_trainer"),
    "hooks": ("smdwidgets.hooks.torch.transformers",),
}
WORDS = ["the", "a", "small", "large", "cat", "dog", "sees", "hears", "likes", "bird", "tree", "house", "and", "not"]


def tokenizer():
    """Return a tokenizer of these words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(["<pad>", "<end>", "<unknown>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>", model_max_length=32
    )


def llama():
    """Return a small language model for these words."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(WORDS) + 3, num_key_value_heads=1, bos_token_id=None, eos_token_id=1, pad_token_id=0, **SIZES
    )
    return LlamaForCausalLM(config)


def sentence(length):
    """Return random words."""
    return " ".join(WORDS[number] for number in torch.randint(0, len(WORDS), (length,)))


def settings(**options):
    """Return the arguments of all trainers."""
    return {
        "output_dir": "checkpoints",
        "per_device_train_batch_size": 4,
        "max_steps": STEPS,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "learning_rate": 0.01,
        "bf16": False,
        **options,
    }


def trained(trainer, model):
    """Train, and return what the log has."""
    trainer.train()
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    return Trained({"scalar/loss": losses}, [model])


def lora(model):
    """Return a model with adapters, whose other parameters are frozen."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1))


@stack(**TRL)
def adapters(record):
    """A loop of the script trains the adapters."""
    model = lora(llama())
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], 0.01)
    return fit(record, model, optimizer, lambda model, tokens: model(tokens, labels=tokens).loss, sentences(words=17))


def supervised(record, model, **options):
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    data = Dataset.from_list([{"text": sentence(8)} for _ in range(32)])
    arguments = SFTConfig(**settings(max_length=16, dataset_text_field="text", **options))
    callbacks = record.callbacks("transformers", model)
    return trained(
        SFTTrainer(model, arguments, train_dataset=data, processing_class=tokenizer(), callbacks=callbacks), model
    )


@stack(**TRL)
def trl_supervised(record):
    return supervised(record, llama(), gradient_accumulation_steps=2)


@stack(**TRL)
def trl_supervised_with_adapters(record):
    return supervised(record, lora(llama()), gradient_checkpointing=True, packing=False)


@stack(**TRL)
def trl_preferences(record):
    """Direct preference optimization against a frozen copy."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    pairs = [{"prompt": sentence(4), "chosen": sentence(4), "rejected": sentence(4)} for _ in range(32)]
    model = llama()
    start = copy.deepcopy(model)
    arguments = DPOConfig(**settings(max_length=16, gradient_checkpointing=False))
    callbacks = record.callbacks("transformers", model)
    data = Dataset.from_list(pairs)
    return trained(
        DPOTrainer(model, start, arguments, train_dataset=data, processing_class=tokenizer(), callbacks=callbacks),
        model,
    )
