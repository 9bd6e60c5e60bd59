"""The architecture assay-seq-1 in ordinary PyTorch: the reference that the engine is compared with.

It is written from the package format's specification, not from the engine. The parameter names are the tensor names in
weights.safetensors. Nothing here is fast: it ranks by scoring every item, and beams are Python lists.
"""

import json
import re
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
# How many continuations a `generate` beam keeps, and the smallest width of a `predict` beam.
GENERATE_BEAM, PREDICT_BEAM = 10, 20


def level_sizes(codebook):
    """Returns each level's code count."""
    halvings = range(codebook["levels"]) if codebook["resolution"] == "multi" else [0] * codebook["levels"]
    return [codebook["base_size"] >> halving for halving in halvings]


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        split = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        attended = F.scaled_dot_product_attention(
            split(self.query(x)), split(self.key(x)), split(self.value(x)), is_causal=True
        )
        return self.output(attended.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, dim, heads, norm_eps, activation, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, norm_eps), nn.LayerNorm(dim, norm_eps)
        self.attention = Attention(dim, heads)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.activation, self.dropout = ACTIVATIONS[activation], dropout

    def forward(self, x):
        drop = lambda y: F.dropout(y, self.dropout, self.training)
        x = x + drop(self.attention(self.norm1(x)))
        return x + drop(self.down(self.activation(self.up(self.norm2(x)))))


class AssaySeq(nn.Module):
    """The network that a model.json describes, with fresh parameters."""

    def __init__(self, model, dropout=0.0):
        super().__init__()
        serving, sizes = model["serving"], level_sizes(model["codebook"])
        dim, types = serving["dim"], serving.get("event_types")
        table = lambda *shape: nn.Parameter(torch.randn(*shape) * 0.02)
        self.item_embedding = nn.ParameterList([table(size, dim) for size in sizes])
        self.position_embedding = table(model["context_length"], dim)
        if types is not None:
            self.type_embedding = table(len(types), dim)
        self.start = table(dim)
        block = lambda: Block(dim, serving["heads"], serving["norm_eps"], serving["activation"], dropout)
        self.blocks = nn.ModuleList([block() for _ in range(serving["layers"])])
        self.norm = nn.LayerNorm(dim, serving["norm_eps"])
        self.heads = nn.ModuleList([nn.Linear(dim, size, bias=False) for size in sizes])
        self.mixers = nn.ModuleList([nn.Linear(dim, dim) for _ in sizes])
        self.dropout = dropout

    def embed_codes(self, codes, levels):
        """Returns the summed embeddings of the first `levels` codes in the last dimension."""
        return sum(self.item_embedding[level][codes[..., level]] for level in range(levels))

    def forward(self, codes, types=None):
        """Returns the final norm at the start and after each event, [B, T + 1, d], of codes [B, T, L].

        `types` is [B, T] with -1 where an event has no type that the model knows.
        """
        events = self.embed_codes(codes, codes.shape[-1]) + self.position_embedding[: codes.shape[1]]
        if types is not None:
            events = events + self.type_embedding[types.clamp(min=0)] * (types >= 0).unsqueeze(-1)
        x = torch.cat([self.start.expand(len(codes), 1, -1), events], dim=1)
        x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def level_logits(self, h, codes, level):
        """Returns all logits on a level, given the state and the codes on the levels before."""
        s = h + self.embed_codes(codes, level) if level else h
        return self.heads[level](s + F.relu(self.mixers[level](s)))

    def item_log_probs(self, h, codes):
        """Returns item log-probabilities, given their codes [.., L] and a state that broadcasts to [.., d]."""
        total = 0
        for level in range(codes.shape[-1]):
            log_probs = F.log_softmax(self.level_logits(h, codes, level), dim=-1)
            log_probs = log_probs.expand(*codes.shape[:-1], -1)
            total = total + log_probs.gather(-1, codes[..., level : level + 1]).squeeze(-1)
        return total


class Package:
    """A package, read from its folder, with its weights as stored and the arithmetic in `dtype`."""

    def __init__(self, folder, dtype=torch.float64):
        folder = Path(folder)
        self.model = json.loads((folder / "model.json").read_text())
        self.sizes = level_sizes(self.model["codebook"])
        self.types = self.model["serving"].get("event_types") or []
        self.context_length = self.model["context_length"]
        self.network = AssaySeq(self.model).to(dtype).eval()
        weights = load_file(folder / "weights.safetensors")
        self.network.load_state_dict({name: tensor.to(dtype) for name, tensor in weights.items()})
        items = folder / "items.ndjson"
        self.table = None
        if items.exists():
            lines = [json.loads(line) for line in items.read_text().splitlines()]
            self.table = {line["item_id"]: tuple(map(int, line["code"].split("-"))) for line in lines}
            # The catalog in code order, which decides ties.
            self.catalog = sorted(self.table, key=self.table.get)

    def code_of(self, item_id):
        """Returns an item's code, or None if the model does not know it."""
        if self.table is not None:
            return self.table.get(item_id)
        parts = item_id.split("-")
        if len(parts) != len(self.sizes) or not all(re.fullmatch("0|[1-9][0-9]*", part) for part in parts):
            return None
        code = tuple(map(int, parts))
        return code if all(c < size for c, size in zip(code, self.sizes)) else None

    def used_events(self, events):
        """Returns the events that enter the network, and the number of unknown ones."""
        known = [event for event in events if self.code_of(event["item_id"]) is not None]
        return known[-self.context_length :], len(events) - len(known)

    @torch.no_grad()
    def states(self, events):
        """Returns the final norm at all positions, [T + 1, d], and the used and unknown event counts."""
        used, n_unknown = self.used_events(events)
        codes = torch.tensor([self.code_of(event["item_id"]) for event in used], dtype=torch.long)
        codes = codes.reshape(1, len(used), len(self.sizes))
        position = {name: at for at, name in enumerate(self.types)}
        types = torch.tensor([[position.get(event.get("type"), -1) for event in used]], dtype=torch.long)
        states = self.network(codes, types if self.types else None)[0]
        return states, len(used), n_unknown

    @torch.no_grad()
    def scores(self, h, item_ids):
        """Returns known items' log-probabilities."""
        codes = torch.tensor([self.code_of(item_id) for item_id in item_ids])
        return dict(zip(item_ids, self.network.item_log_probs(h, codes).tolist()))

    def rank(self, h, item_ids):
        """Returns [item_id, score] for known items, best first; ties have the code order."""
        scores = self.scores(h, item_ids)
        return [[one, scores[one]] for one in sorted(item_ids, key=lambda one: (-scores[one], self.code_of(one)))]

    @torch.no_grad()
    def beam(self, h, top_k, excluded=frozenset()):
        """Returns the items that a beam search over the code trie finds, as `rank` does."""
        width = max(2 * top_k, PREDICT_BEAM)
        allowed = {code: item_id for item_id, code in self.table.items() if item_id not in excluded}
        beam = [((), 0.0)]
        for level in range(len(self.sizes)):
            wider = []
            for prefix, score in beam:
                children = sorted({code[level] for code in allowed if code[:level] == prefix})
                logits = self.network.level_logits(h, torch.tensor(prefix, dtype=torch.long), level)
                log_probs = F.log_softmax(logits, dim=-1)
                wider += [(prefix + (child,), score + log_probs[child].item()) for child in children]
            wider.sort(key=lambda one: (-one[1], one[0]))
            beam = wider[:width]
        return [[allowed[code], score] for code, score in beam[:top_k]]

    def generate_beam(self, events, n_events, n_continuations, exclude_seen=False):
        """Returns the best continuations as (item ids, score)."""
        beam = [((), 0.0)]
        for _ in range(n_events):
            wider = []
            for generated, score in beam:
                longer = events + [{"item_id": item_id} for item_id in generated]
                seen = {event["item_id"] for event in longer} if exclude_seen else set()
                found = self.beam(self.states(longer)[0][-1], GENERATE_BEAM, seen)
                wider += [(generated + (item_id,), score + more) for item_id, more in found]
            if not wider:
                break
            wider.sort(key=lambda one: (-one[1], [self.code_of(item_id) for item_id in one[0]]))
            beam = wider[:GENERATE_BEAM]
        return beam[:n_continuations]
