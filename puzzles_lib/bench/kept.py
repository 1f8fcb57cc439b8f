"""Count what autograd keeps of other libraries' models, in torch and on packed activations.

The models of transformers, timm, torchvision and torch are small and have random weights. A model counts if
its library is installed. No GPU is needed, and no time is measured.
"""

import copy
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from puzzles_lib.kernels import pack_activations

VOCABULARY, TEXTS, LENGTH, IMAGE = 500, 4, 64, 64
SIZES = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
GATED = {**SIZES, "vocab_size": VOCABULARY, "intermediate_size": 704, "num_key_value_heads": 2}
QWEN = {**GATED, "head_dim": 64}
PLAIN_MLP = {**SIZES, "intermediate_size": 1024}


def drawn(*shape: int, seed: int = 1) -> torch.Tensor:
    """Return normal random numbers from a seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def tokens() -> torch.Tensor:
    """Return texts of random tokens, [TEXTS, LENGTH]."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, VOCABULARY, (TEXTS, LENGTH), generator=generator)


def from_transformers(model: str, config: str, **options: Any) -> nn.Module:
    """Return a model of transformers with fresh weights."""
    transformers = importlib.import_module("transformers")
    made = getattr(transformers, model)(getattr(transformers, config)(**options))
    made.config.use_cache = False  # it would keep copies of keys and values
    return made


def gpt2(dropout: float = 0.0) -> nn.Module:
    return from_transformers(
        "GPT2LMHeadModel", "GPT2Config", vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=256, n_layer=2,
        n_head=4, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


def llama() -> nn.Module:
    return from_transformers("LlamaForCausalLM", "LlamaConfig", **GATED)


def qwen3() -> nn.Module:
    return from_transformers("Qwen3ForCausalLM", "Qwen3Config", **QWEN)


def gemma() -> nn.Module:
    return from_transformers("Gemma2ForCausalLM", "Gemma2Config", **QWEN)


def phi3() -> nn.Module:
    return from_transformers("Phi3ForCausalLM", "Phi3Config", **GATED, pad_token_id=0)


def qwen3_moe() -> nn.Module:
    experts = {"moe_intermediate_size": 256, "num_experts": 4, "num_experts_per_tok": 2}
    return from_transformers("Qwen3MoeForCausalLM", "Qwen3MoeConfig", **QWEN, **experts)


def bert(dropout: float = 0.0) -> nn.Module:
    return from_transformers(
        "BertForMaskedLM", "BertConfig", **PLAIN_MLP, vocab_size=VOCABULARY, max_position_embeddings=LENGTH,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=0.0,
    )  # fmt: skip


def vit_of_transformers() -> nn.Module:
    return from_transformers(
        "ViTForImageClassification", "ViTConfig", **PLAIN_MLP, image_size=IMAGE, patch_size=8, num_labels=10,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip


def vit_of_timm() -> nn.Module:
    timm = importlib.import_module("timm")
    return timm.models.VisionTransformer(IMAGE, 8, embed_dim=256, depth=2, num_heads=4, num_classes=10)


def vit_of_torchvision() -> nn.Module:
    models = importlib.import_module("torchvision.models")
    return models.VisionTransformer(IMAGE, 8, 2, 4, 256, 1024, num_classes=10)


def encoder(dropout: float = 0.0) -> nn.Module:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def with_lora(model: nn.Module) -> nn.Module:
    """Return a model with LoRA layers, none of which starts at zero."""
    peft = importlib.import_module("peft")
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=names))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # zero at first, so that lora_A has no gradient
            nn.init.normal_(parameter, std=0.02, generator=torch.Generator().manual_seed(1))
    return model


def of_text(model: nn.Module) -> torch.Tensor:
    return model(input_ids=tokens(), labels=tokens()).loss


def of_images(model: nn.Module) -> torch.Tensor:
    output = model(drawn(TEXTS, 3, IMAGE, IMAGE))
    return F.cross_entropy(getattr(output, "logits", output), torch.arange(TEXTS))


def of_vectors(model: nn.Module) -> torch.Tensor:
    shape = (TEXTS, LENGTH, 256)
    return (model(drawn(*shape)) * drawn(*shape, seed=2)).mean()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], torch.Tensor], str]] = {
    "GPT-2": (gpt2, of_text, "transformers"),
    "GPT-2 with dropout": (lambda: gpt2(0.1), of_text, "transformers"),
    "Llama": (llama, of_text, "transformers"),
    "Llama with LoRA": (lambda: with_lora(llama()), of_text, "peft"),
    "Qwen3": (qwen3, of_text, "transformers"),
    "Phi-3": (phi3, of_text, "transformers"),
    "Gemma 2": (gemma, of_text, "transformers"),
    "Qwen3, experts": (qwen3_moe, of_text, "transformers"),
    "BERT": (bert, of_text, "transformers"),
    "BERT with dropout": (lambda: bert(0.1), of_text, "transformers"),
    "ViT of transformers": (vit_of_transformers, of_images, "transformers"),
    "ViT of timm": (vit_of_timm, of_images, "timm"),
    "ViT of torchvision": (vit_of_torchvision, of_images, "torchvision"),
    "nn.TransformerEncoder": (encoder, of_vectors, "torch"),
    "nn.TransformerEncoder with dropout": (lambda: encoder(0.1), of_vectors, "torch"),
}
"""By name: a model, its loss, and the library that it needs."""


def kept(model: nn.Module, loss: Callable) -> int:
    """Return the bytes of the storages that autograd keeps; without parameters, buffers and logits."""
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    sizes: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and VOCABULARY not in tensor.shape[-1:]:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = loss(model)
    del value
    return sum(sizes.values())


def measure() -> dict[str, Any]:
    """Return the record: for each model the bytes kept in torch, and with 4 and 2 bits."""
    rows, used = [], {"torch"}
    for name, (make, loss, library) in MODELS.items():
        if importlib.util.find_spec(library) is None:
            continue
        torch.manual_seed(0)
        plain = make().train()
        packed = {f"{bits} bits": pack_activations(copy.deepcopy(plain), bits) for bits in (4, 2)}
        counts = {path: kept(model, loss) for path, model in {"torch": plain, **packed}.items()}
        rows.append({"model": name, **counts})
        used.add(library)
    versions = {name: importlib.import_module(name).__version__.split("+")[0] for name in sorted(used)}
    return {"versions": versions, "rows": rows}


def table(record: Mapping[str, Any]) -> str:
    """Return a record as text."""
    lines = [f"{'kept for backward':36} {'torch, MB':>9} {'4 bits':>7} {'2 bits':>7}"]
    for row in record["rows"]:
        shares = " ".join(f"{row[path] / row['torch']:7.2f}" for path in ("4 bits", "2 bits"))
        lines.append(f"{row['model']:36} {row['torch'] / 1e6:9.2f} {shares}")
    return "\n".join(lines)
