"""Verifies a score receipt without a network: verify.py RECEIPT.json --keys JWKS.json --log-key VKEY [options]."""
import argparse, base64, hashlib, hmac, json, math, re
from decimal import Decimal
from pathlib import Path
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

# For each kind of document: its keys, its predicate's keys, the time at which its key must be valid, its subject, its type.
RECEIPT = ("id job_id statement jws log", "receipt_id job_id org_hash suite_id suite_version suite_commitment hfm_sha metric "
           "release figures value_scope value ci95 ci_method n n_submitted n_missing submission_number finished_at issued_at "
           "nonce", "issued_at", "predictions", "urn:assay:eval-result:v1")
SUITE = ("suite_id suite_version suite_commitment published_at committed_at statement jws log opening",
         "suite_id suite_version suite_commitment metric n_items release clip closes_at board published_at committed_at",
         "committed_at", "suite", "urn:assay:suite:v1")
OPENING = "retired_at salt seed items_sha256 answers_sha256 items_url answers_url"
# Only statements and openings of suites with clusters, slices, baselines or a retest have these keys.
OPTIONAL = set("cluster n_clusters average slices slice_min quantiles baselines_sha256 retest_sha256 retest_url".split())

def check(condition, reason, value=None):
    if not condition:
        raise ValueError(reason)
    return value
def sha256(*parts): return hashlib.sha256(b"".join(parts)).digest()

def parse(text, members=None):
    """Parses JSON. Python also accepts repeated keys, NaN and 1e999, which other parsers reject or read differently."""
    return json.loads(text, parse_constant=lambda name: check(False, f"{name} is not a JSON value"),
        parse_float=lambda number: check(math.isfinite(float(number)), "a JSON number is not finite", float(number)),
        object_pairs_hook=members or (lambda pairs: check(len(dict(pairs)) == len(pairs), "a key is repeated", dict(pairs))))
def records(text, field):
    """Returns a field by item_id, from NDJSON, a JSON array or an object with `predictions`. It is None after an error."""
    try:
        lines = parse(text)
    except ValueError:
        lines = [parse(line) for line in text.split("\n") if line.strip()]
    lines = lines.get("predictions", [lines]) if isinstance(lines, dict) else lines
    found = {line["item_id"]: line[field] if line.get("error") is None else None for line in lines}
    return check(len(found) == len(lines), "an item_id is repeated", found)

def canonical(value):
    """Returns the RFC 8785 form. A double's repr has ECMAScript's digits, but another notation."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(f"{canonical(name)}:{canonical(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if value is None or isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    number = Decimal(repr(float(value) or 0)).normalize()
    return f"{number:f}" if -7 < number.adjusted() < 21 else f"{number:e}"
def from_base64(text, url=False):
    """Decodes base64. Encoding again finds foreign characters and padding bits that are not zero."""
    padded, alphabet = (text.replace("=", "?") + "=" * (-len(text) % 4), b"-_") if url else (text, b"+/")
    value = base64.b64decode(padded, alphabet)
    return check(base64.b64encode(value, alphabet).decode() == padded, "base64 is not canonical", value)
def tree_root(hashes):
    while len(hashes) > 1:
        hashes = [sha256(b"\1", *hashes[i:i + 2]) if i + 1 < len(hashes) else hashes[i] for i in range(0, len(hashes), 2)]
    return hashes[0] if hashes else sha256()
def parse_checkpoint(note):
    text, _, signatures = note.rpartition("\n\n")
    origin, size, root = text.split("\n")
    check(re.fullmatch("0|[1-9][0-9]{0,18}", size), "the size of the checkpoint is not a decimal number")
    return argparse.Namespace(origin=origin, size=int(size), root=from_base64(root), text=text + "\n", signatures=signatures)

def verify_jws(jws, keys, kid):
    """Returns the key with this kid, which signed the compact JWS."""
    header, _, signature = (from_base64(part, url=True) for part in jws.split("."))
    expected = {"alg": "EdDSA", "kid": kid, "typ": "application/vnd.in-toto+json"}
    key = check(parse(header.decode()) == expected and kid in keys, "the JWS header has another form or no key for its kid", keys[kid])
    check(key == key | {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig"}, "the key is not for Ed25519")
    thumbprint = sha256(b'{"crv":"Ed25519","kty":"OKP","x":"%b"}' % key["x"].encode())
    check(from_base64(kid, url=True) == thumbprint, "the kid is not the RFC 7638 thumbprint of the key")
    public_key = Ed25519PublicKey.from_public_bytes(from_base64(key["x"], url=True))
    public_key.verify(signature, jws.rpartition(".")[0].encode())
    return key

# Each step is a function over `case`, which has the options and earlier steps' results. Any exception fails the step.
def signature(case):
    case.text = Path(case.file).read_text("utf-8")
    case.jws = parse(case.text, members=dict)["jws"]  # The next step rejects repeated keys.
    header, case.payload, _ = (from_base64(part, url=True) for part in case.jws.split("."))
    keys, kid = parse(Path(case.keys).read_text("utf-8"))["keys"], parse(header.decode())["kid"]
    check(sum(key["kid"] == kid for key in keys) == 1, "there is no key, or several, for the kid")
    case.key = verify_jws(case.jws, {key["kid"]: key for key in keys}, kid)

def statement(case):
    (keys, predicate_keys, _, subject, kind), document, payload = case.kind, parse(case.text), parse(case.payload.decode())
    case.log, case.predicate, case.digest = document["log"], payload["predicate"], payload["subject"][0]["digest"]["sha256"]
    parts = {keys: document, predicate_keys: case.predicate, "origin index proof": case.log, OPENING: document.get("opening")}
    for names, value in parts.items():
        check(value is None or value.keys() - OPTIONAL == set(names.split()), f"expected exactly the keys {names}")
    expected = {"_type": "https://in-toto.io/Statement/v1", "predicateType": kind, "predicate": case.predicate,
                "subject": [{"name": subject, "digest": {"sha256": case.digest}}]}
    check(canonical(payload) == canonical(expected) == canonical(document["statement"]), "`statement` differs from `jws`")
    for name in document.keys() - {"statement", "jws", "log", "opening"}:
        check(document[name] == case.predicate["receipt_id" if name == "id" else name], f"`{name}` differs from the payload")

def inclusion(case):
    header, _, note = check(case.log, "the document is not in the log", case.log)["proof"].partition("\n\n")
    lines, index, case.tree = header.split("\n"), case.log["index"], parse_checkpoint(note)
    check(type(index) is int and lines[:2] == ["c2sp.org/tlog-proof@v1", f"index {index}"], "no tlog-proof of `log.index`")
    path, inner = [from_base64(line) for line in lines[2:]], (index ^ case.tree.size - 1).bit_length()
    has_length = 0 <= index < case.tree.size and len(path) == inner + (index >> inner).bit_count()
    root = check(has_length, "the proof does not have the length that the tree needs", sha256(b"\0", sha256(case.jws.encode())))
    for level, sibling in enumerate(path):
        root = sha256(b"\1", root, sibling) if level < inner and not index >> level & 1 else sha256(b"\1", sibling, root)
    check(root == case.tree.root, "the proof does not lead to the root of the checkpoint")

def checkpoint(case, tree=None):
    tree, (name, key_id, key) = tree or case.tree, case.log_key.split("+", 2)
    check((key := from_base64(key))[:1] == b"\1" and key_id == sha256(name.encode(), b"\n", key)[:4].hex(), "malformed log key")
    check(tree.origin == case.log["origin"] == name, "the checkpoint, `log` and the log key have different origins")
    check(re.fullmatch(r"(— [^\s+]+ \S+\n)+", tree.signatures), "the checkpoint has a malformed signature line")
    notes = [from_base64(line.split(" ")[2]) for line in tree.signatures.split("\n") if line.startswith(f"— {name} ")]
    signatures = [note[4:] for note in notes if note[:4].hex() == key_id]  # Others: the next log key, and witnesses.
    for signature in check(signatures, "the log key has not signed the checkpoint", signatures):
        Ed25519PublicKey.from_public_bytes(key[1:]).verify(signature, tree.text.encode())

def change(case, kid, action, before):
    """Checks a key's logged change: it is signed by itself as the log's first entry, or by an earlier key in the chain."""
    keys = {key["kid"]: key for key in parse(Path(case.keys).read_text("utf-8"))["keys"]}
    name = {"added": "introduction", "revoked": "revocation"}[action]
    one = argparse.Namespace(log_key=case.log_key, key=keys[kid], **check(name in keys[kid], f"nothing shows the {name}", keys[kid][name]))
    header, payload, _ = (from_base64(part, url=True) for part in one.jws.split("."))
    signer = parse(header.decode())["kid"]
    verify_jws(one.jws, keys, signer)
    claim, x = parse(payload.decode()), one.key["x"]
    extra = {"revoked_at_index": one.key["revoked_at_index"]} if action == "revoked" else {}
    expected = {"_type": "https://in-toto.io/Statement/v1", "predicateType": "urn:assay:key:v1", "subject": [{"name": "receipt-key",
                "digest": {"sha256": sha256(from_base64(x, url=True)).hex()}}],
                "predicate": {"action": action, "kid": kid, "x": x, "at": claim["predicate"]["at"]} | extra}
    check(canonical(claim) == canonical(expected), "a change of a key has another form")
    inclusion(one)
    checkpoint(one)
    index = one.log["index"]
    check(index < before and index in extra.values() or not extra and index < before, "a change of a key has another place")
    check(index > 0 if signer != kid else not extra and index == 0, "only the first entry of the log introduces its own key")
    if signer != kid:
        check(keys[signer].get("revoked_at_index", math.inf) > index, "a revoked key signed a change of a key")
        change(case, signer, "added", index)

def key(case):
    change(case, case.key["kid"], "added", math.inf)
    if "revoked_at_index" in case.key or "revocation" in case.key:
        change(case, case.key["kid"], "revoked", math.inf)
    times = case.key["valid_from"], case.predicate[case.kind[2]], case.key.get("valid_until", "9999-12-31T23:59:59.999999Z")
    well_formed = all(re.fullmatch(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}\.[0-9]{6}Z", time) for time in times)
    is_revoked = "revoked_at_index" in case.key and not (case.log and case.log["index"] < case.key["revoked_at_index"])
    check(well_formed and not is_revoked and times[0] <= times[1] < times[2], f"the key was revoked or not valid at {times[1]}")

def consistency(case):
    earlier, leaves = parse_checkpoint(Path(case.checkpoint).read_bytes().decode()), []
    checkpoint(case, earlier)
    for number in range((case.tree.size + 255) // 256):
        name, width = f"{number % 1000:03}", min(256, case.tree.size - 256 * number)
        place = f"x{number // 1000:03}/{name}" if number > 999 else name
        paths = [Path(case.tiles or "", "tile", kind, place) for kind in ("0", "entries")]
        tile, bundle = ((path if path.is_file() else Path(f"{path}.p", str(width))).read_bytes() for path in paths)
        entries = [bundle[at:at + 34] for at in range(0, len(bundle), 34)]
        check(all(len(entry) == 34 and entry[:2] == b"\0 " for entry in entries), "an entry does not have 32 bytes")
        hashes = [sha256(b"\0", entry[2:]) for entry in entries]
        leaves += check(len(hashes) >= width and tile == b"".join(hashes), "a tile is not that of its entries", hashes[:width])
    roots = [tree_root(leaves), tree_root(leaves[:earlier.size])]
    check(earlier.size <= len(leaves) and roots == [case.tree.root, earlier.root], "the tiles do not lead to both roots")

def predictions(case):
    case.predicted = records(Path(case.predictions).read_text("utf-8"), "prediction")
    lines = [canonical({"item_id": item, "prediction": value}) + "\n" for item, value in case.predicted.items()]
    check(sha256("".join(lines).encode()).hex() == case.digest, "the predictions have another SHA-256 than the subject")

def commitment(case):
    suite = argparse.Namespace(**vars(case) | {"file": Path(case.opening, "commitment.json"), "kind": SUITE})
    for step in (signature, statement, inclusion, checkpoint, key):
        step(suite)
    check(case.log is None or suite.log["index"] < case.log["index"], "the suite is in the log after the receipt")
    check(suite.predicate | case.predicate == case.predicate | suite.predicate, "the publication statement is of another suite")
    opening = check(parse(suite.text)["opening"], "no opening", parse(suite.text)["opening"])
    kinds = ["items", "answers"] + ["retest"] * ("retest_sha256" in opening)
    names = ["salt"] + [f"{kind}_sha256" for kind in kinds] + ["seed"] * (opening["seed"] is not None)
    check(all(re.fullmatch("[0-9a-f]{64}", opening[name]) for name in names), "the opening must have 64 lower-case hex digits")
    salt, *digests = (bytes.fromhex(opening[name]) for name in names)
    files, case.seed = [Path(case.opening, f"{kind}.ndjson") for kind in kinds], digests[len(kinds):]
    check([sha256(file.read_bytes()) for file in files] == digests[:len(kinds)], "a file has another SHA-256 than the opening")
    # Without a seed, zeros take its place before a retest.
    digest = sha256(salt, *digests[:2], *(case.seed or [bytes(32)] * (len(kinds) - 2)), *digests[2:len(kinds)]).hex()
    check(digest == suite.digest == case.predicate["suite_commitment"], f"the opening gives the commitment {digest}")
    case.answers = records(files[1].read_text("utf-8"), "answer")
    check(len(case.answers) == suite.predicate["n_items"], "the number of answers is not n_items")
def is_correct(prediction, answer):
    first = prediction[0] if isinstance(prediction, list) and prediction else prediction
    gains = {answer: 1} if isinstance(answer, str) else dict.fromkeys(answer, 1) if isinstance(answer, list) else answer
    return isinstance(first, str) and gains.get(first, 0) > 0
def wilson(share, n, z=1.959963984540054):
    spread, scale = z * z / n, 1 + z * z / n
    middle, half = (share + spread / 2) / scale, z / scale * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return [max(middle - half, 0) if share > 0 else 0, min(middle + half, 1) if share < 1 else 1]

def score(case):
    result, answers, (policy, _, argument) = case.predicate, case.answers, case.predicate["release"].rstrip(")").partition("(")
    if result["metric"] != "accuracy" or result["figures"] == "board" or "n_clusters" in result:
        return "skipped: only accuracy of independent items is implemented, and not the board of a ladder"
    check(policy != "sealed" or case.seed, "the opening has no seed, which draws the sealed items")
    if result["figures"] != "all":
        count = min(max(math.floor(float(argument) * len(answers) + 0.5), 1), len(answers) - 1)
        order = sorted(answers, key=lambda item: hmac.digest(*case.seed, item.encode(), "sha256"))
        answers = {item: answers[item] for item in {"sealed": order[:count], "open": order[count:]}[result["figures"]]}
    value = sum(is_correct(case.predicted.get(item), answer) for item, answer in answers.items()) / len(answers)
    ci95 = wilson(value, len(answers))
    if policy == "rounded":  # Half away from zero.
        scale = 10 ** int(argument)
        value, *ci95 = [(int(x * scale) + (x * scale % 1 >= 0.5)) / scale for x in (value, *ci95)]
    again = {"value": value, "ci95": ci95, "ci_method": "wilson", "n": len(answers),
             "n_submitted": len(case.predicted) - list(case.predicted.values()).count(None),
             "n_missing": sum(case.predicted.get(item) is None for item in answers)}
    if policy == "ladder":  # The receipt does not say where the grid starts. It lowers a value by less than one step.
        check(result["value"] > value - float(argument) - 1e-9, "the value is worse than the repeated value on the grid")
        if result["value_scope"] == "best_so_far" and result["submission_number"] > 1:
            return "skipped: the value is the best of several submissions, and only one is given"
        again |= {"value": result["value"], "ci95": None, "ci_method": None}
    for name, figure in again.items():
        check(canonical(result[name]) == canonical(figure), f"{name} is {result[name]}, but scoring again gives {figure}")

def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", metavar="RECEIPT.json")
    parser.add_argument("--allow-unlogged", action="store_true")
    for option in ("--keys", "--log-key", "--predictions", "--opening", "--checkpoint", "--tiles"):
        parser.add_argument(option, required=option in ("--keys", "--log-key"))
    case = parser.parse_args(arguments, argparse.Namespace(kind=RECEIPT))
    steps = {signature: "", statement: "", inclusion: "log" * case.allow_unlogged, checkpoint: "log", key: "",
             consistency: "log checkpoint", predictions: "predictions", commitment: "opening", score: "predictions opening"}
    for step, needed in steps.items():
        try:
            print(f"{step.__name__}: {'skipped' if None in map(vars(case).get, needed.split()) else step(case) or 'ok'}")
        except Exception as error:
            print(f"{step.__name__}: FAILED:", ascii(error if type(error) is KeyError else str(error) or error).strip("'\""))
            return 1

if __name__ == "__main__":
    raise SystemExit(main())
