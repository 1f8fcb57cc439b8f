"""Packed training of models of transformers, timm, torchvision and peft, small and with random weights.

Give --libraries, and install them: pip install transformers timm torchvision peft accelerate. Written for
transformers 5.24, timm 1.0, torchvision 0.28, peft 0.21 and accelerate 1.15.
"""

import copy
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from puzzles_lib.kernels import pack_activations, pack_checkpoints, report, unpack_activations
from puzzles_lib.kernels.modules import PLAIN

pytestmark = pytest.mark.libraries

VOCABULARY, TEXTS, LENGTH, IMAGE = 500, 4, 64, 64
SIZES = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
GATED = {**SIZES, "vocab_size": VOCABULARY, "intermediate_size": 704, "num_key_value_heads": 2}
QWEN = {**GATED, "head_dim": 64}
PLAIN_MLP = {**SIZES, "intermediate_size": 1024}


def drawn(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def tokens() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, VOCABULARY, (TEXTS, LENGTH), generator=generator)


def from_transformers(model: str, config: str, **options: Any) -> nn.Module:
    transformers = pytest.importorskip("transformers")
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
    timm = pytest.importorskip("timm")
    return timm.models.VisionTransformer(IMAGE, 8, embed_dim=256, depth=2, num_heads=4, num_classes=10)


def vit_of_torchvision() -> nn.Module:
    models = pytest.importorskip("torchvision.models")
    return models.VisionTransformer(IMAGE, 8, 2, 4, 256, 1024, num_classes=10)


def encoder(dropout: float = 0.0) -> nn.Module:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def with_lora(model: nn.Module) -> nn.Module:
    peft = pytest.importorskip("peft")
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


@dataclass(frozen=True)
class Row:
    """A model, its loss, the share of torch's bytes that it may keep with 2 bits, classes not packed."""

    make: Callable[[], nn.Module]
    loss: Callable[[nn.Module], torch.Tensor]
    share: float
    left: set[str] = field(default_factory=set)


TEXT, IMAGES = {"Embedding"}, {"Conv2d"}
ROWS = {
    "GPT-2": Row(gpt2, of_text, 0.20, TEXT),
    "GPT-2 with dropout": Row(lambda: gpt2(0.1), of_text, 0.20, TEXT),
    "Llama": Row(llama, of_text, 0.25, TEXT),
    "Llama with LoRA": Row(lambda: with_lora(llama()), of_text, 0.30, TEXT),
    "Qwen3": Row(qwen3, of_text, 0.25, TEXT),
    "Phi-3": Row(phi3, of_text, 0.30, TEXT),
    "Gemma 2": Row(gemma, of_text, 0.45, {"Gemma2TextScaledWordEmbedding"}),
    "Qwen3, experts": Row(qwen3_moe, of_text, 0.25, TEXT | {"Qwen3MoeTopKRouter"}),
    "BERT": Row(bert, of_text, 0.32, TEXT),
    "BERT with dropout": Row(lambda: bert(0.1), of_text, 0.30, TEXT),
    "ViT of transformers": Row(vit_of_transformers, of_images, 0.38, IMAGES | {"ViTEmbeddings"}),
    "ViT of timm": Row(vit_of_timm, of_images, 0.38, IMAGES | {"VisionTransformer"}),
    "ViT of torchvision": Row(vit_of_torchvision, of_images, 0.38, IMAGES | {"VisionTransformer", "Encoder"}),
    "nn.TransformerEncoder": Row(encoder, of_vectors, 0.45),
    "nn.TransformerEncoder with dropout": Row(lambda: encoder(0.1), of_vectors, 0.30),
}
rows = pytest.mark.parametrize("name", ROWS)


def made(name: str) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    torch.manual_seed(0)
    return ROWS[name].make().train(), ROWS[name].loss


def gradients(model: nn.Module, loss: Callable) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    torch.manual_seed(2)  # of dropout
    loss(model).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def cosines(model: nn.Module, plain: nn.Module, loss: Callable) -> dict[str, float]:
    """Between the gradients of each parameter that has one worth the name."""
    got, want = gradients(model, loss), gradients(plain, loss)
    assert got.keys() == want.keys()
    largest = max(float(gradient.norm()) for gradient in want.values())
    return {
        name: float(F.cosine_similarity(got[name].flatten().double(), want[name].flatten().double(), 0))
        for name in want
        if want[name].norm() > 1e-5 * largest  # a key's bias has none in exact arithmetic
    }


def kept(model: nn.Module, loss: Callable) -> int:
    """Bytes of the storages that autograd keeps; parameters, buffers and logits left out."""
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    sizes = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and VOCABULARY not in tensor.shape[-1:]:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = loss(model)
    del value
    return sum(sizes.values())


def checkpointed(model: nn.Module) -> None:
    name = "activation_checkpointing_enable"  # newer versions of transformers warn of the other name
    getattr(model, name if hasattr(model, name) else "gradient_checkpointing_enable")()


@rows
def test_gradients_are_those_of_the_unpacked_model(name):
    plain, loss = made(name)
    for bits, slope_bits, least in ((8, 8, 0.999), (4, 4, 0.97)):
        packed = pack_activations(copy.deepcopy(plain), bits, slope_bits=slope_bits)
        found = cosines(packed, plain, loss)
        worst = min(found, key=found.get)
        assert found[worst] > least, worst
        with torch.no_grad():
            assert torch.equal(loss(packed.eval()), loss(plain.eval()))
        plain.train()


@rows
def test_it_keeps_less_and_reports_what_is_left(name):
    plain, loss = made(name)
    packed = pack_activations(copy.deepcopy(plain), 2)
    assert kept(packed, loss) < ROWS[name].share * kept(plain, loss)
    assert {line.kind for line in report(packed).lines if not line.packed} == ROWS[name].left


@rows
def test_it_is_copied_pickled_saved_and_unpacked(name):
    plain, loss = made(name)
    packed = pack_activations(copy.deepcopy(plain), 4)
    want = gradients(packed, loss)
    file = io.BytesIO()
    torch.save(packed, file)
    file.seek(0)
    loaded = pack_activations(copy.deepcopy(plain), 4)
    nn.init.zeros_(next(loaded.parameters()))
    loaded.load_state_dict(plain.state_dict())
    plain.load_state_dict(packed.state_dict())
    for other in (copy.deepcopy(packed), torch.load(file, weights_only=False), loaded):
        got = gradients(other, loss)
        assert all(torch.equal(got[name], want[name]) for name in want)
    classes = [type(module) for module in plain.modules()]
    assert [type(module) for module in unpack_activations(packed).modules()] == classes


@pytest.mark.parametrize("make", [gpt2, llama, qwen3_moe], ids=["GPT-2", "Llama", "Qwen3, experts"])
def test_it_generates_the_same_text(make):
    torch.manual_seed(0)
    plain = make().eval()
    packed = pack_activations(copy.deepcopy(plain))
    options = {"max_new_tokens": 8, "use_cache": True, "do_sample": False, "pad_token_id": 0}
    prompt = {"input_ids": tokens()[:1, :8], "attention_mask": torch.ones(1, 8, dtype=torch.long)}
    assert torch.equal(packed.generate(**prompt, **options), plain.generate(**prompt, **options))


@pytest.mark.parametrize("make", [gpt2, llama, qwen3_moe], ids=["GPT-2", "Llama", "Qwen3, experts"])
def test_checkpointed_blocks(make):
    torch.manual_seed(0)
    plain = make().train()
    packed = pack_activations(copy.deepcopy(plain), 8, slope_bits=8)
    wanted = gradients(packed, of_text)
    checkpointed(packed)
    got = gradients(packed, of_text)
    assert all(torch.allclose(got[name], wanted[name], rtol=1e-4, atol=1e-6) for name in wanted)
    checkpointed(plain)
    before = kept(plain, of_text)
    pack_checkpoints(packed, 8)
    least = 0.99 if make is qwen3_moe else 0.999  # a few tokens go to other experts in the second run
    assert min(cosines(packed, plain, of_text).values()) > least
    assert kept(packed, of_text) < 0.6 * before


def test_lora_is_added_first():
    torch.manual_seed(0)
    plain = llama()
    right = pack_activations(with_lora(copy.deepcopy(plain)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert kept(right, of_text) < 0.4 * kept(with_lora(copy.deepcopy(plain)), of_text)
    other = with_lora(pack_activations(copy.deepcopy(plain)))
    with pytest.warns(UserWarning, match=r"call pack_activations\(model\) again"):
        of_text(other)
    pack_activations(other)
    assert kept(other, of_text) == kept(right, of_text)


def test_a_trainer_trains(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    torch.manual_seed(0)
    plain = llama()
    packed = pack_activations(copy.deepcopy(plain), 8, slope_bits=8)
    data = [{"input_ids": text, "labels": text} for text in tokens()]
    before = packed.model.embed_tokens.weight.detach().clone()
    losses = []
    for model in (plain, packed):
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=2, per_device_train_batch_size=4, use_cpu=True, report_to=[],
            save_strategy="no", disable_tqdm=True, learning_rate=1e-3,
        )  # fmt: skip
        trainer = transformers.Trainer(model, arguments, train_dataset=data)
        losses.append(trainer.train().training_loss)
    assert losses[1] == pytest.approx(losses[0], abs=2e-3)
    assert not torch.equal(packed.model.embed_tokens.weight, before)
    packed.save_pretrained(tmp_path / "saved")
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "saved").eval()
    with torch.no_grad():
        assert torch.equal(of_text(again), of_text(packed.eval()))
    assert not any(type(module) in PLAIN for module in again.modules())


def test_accelerate_trains_in_bfloat16():
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)  # of a test before
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
    plain = qwen3()
    packed = pack_activations(copy.deepcopy(plain), 8, slope_bits=8)
    steps = []
    for model in (plain, packed):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        model, optimizer = accelerator.prepare(model, optimizer)
        losses = []
        for _ in range(4):
            with accelerator.accumulate(model):
                loss = of_text(model)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        steps.append(losses)
    assert steps[0][-1] < steps[0][0]
    assert steps[1] == pytest.approx(steps[0], abs=1e-2)
