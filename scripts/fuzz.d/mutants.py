"""Proof that each fuzz target can fail: the product is broken in one place, in a copy of the sources, and the target has to
notice within its time; see scripts/fuzz."""

import os
import shutil
import time

import runner

FOLDER = os.path.join(runner.BUILD, "mutants")
SOURCE = os.path.join(FOLDER, "source")

# target, file, what stands there (once), what is put in its place
MUTANTS = [
    ("frame", "engine/log/frames/frame_reader.c", "reader->header.stored_bytes) != reader->header.crc)",
     "reader->header.stored_bytes) != reader->header.crc && reader->header.n_records == 1)"),
    ("frame", "engine/log/frames/frame.c", "from = pos + 1;", "from = pos + 2;"),
    ("scan", "engine/log/index/scan.c", "    r = 0;\n    if (s->reader.fault == NRD_FRAME_BAD_RECORDS)",
     "    if (s->reader.fault == NRD_FRAME_BAD_RECORDS)"),
    ("scan", "engine/log/index/scan_resync.c", "        if (sure)\n            f->from = end;", ""),
    ("log", "engine/log/recovery.c", "    if (tail->torn && !rotten) {", "    if (tail->torn && !rotten && size_bytes > 200) {"),
    ("log", "engine/log/recovery.c", "hwm = MAX(file->value, nrd_segment_base(active));", "hwm = file->value + 1;"),
    ("index_file", "engine/log/index/index_file.c",
     "nrd_get_be32(bytes + AT_HEADER_CRC) == nrd_crc32c(0, bytes, AT_HEADER_CRC);",
     "(nrd_get_be32(bytes + AT_HEADER_CRC) == nrd_crc32c(0, bytes, AT_HEADER_CRC) || bytes[55] % 2 == 1);"),
    ("hwm", "engine/log/segments/hwm.c", "HWM_BYTES);", "HWM_BYTES + 1);"),
    ("ahead", "engine/queue/ahead.c", "body += nrd_put_uvarint(body, ahead[i] - previous - 1);",
     "body += nrd_put_uvarint(body, ahead[i] - previous - (ahead[i] % 7 > 0));"),
    ("offset_store", "engine/queue/offset_store_open.c", "sequence <= store->sequence)", "sequence > store->sequence)"),
    ("cursor", "engine/fanout/cursor_store.c", "rc = write_slot(store, 1 - store->anchor, &slot);",
     "rc = write_slot(store, store->anchor, &slot);"),
    ("wal_entry", "engine/ingress/wal_entry.c", "return left == 0 && n_records == view->head.n_records;", "return left == 0;"),
    ("wal", "engine/ingress/wal_scan.c", "piece.view.head.sequence >= scan->least", "piece.view.head.sequence > 0"),
    ("checkpoint", "engine/ingress/checkpoint.c", "nrd_checkpoint_sort(checkpoint); /*", "/*"),
    ("topic_record", "engine/meta/topic_record.c", "bool ascending = child_place(record, child->name) == record->children->len;",
     "bool ascending = true;"),
    ("config", "engine/meta/topic_config.c", "    if (rc == 0)\n        *config = next;", "    *config = next;"),
    ("incarnation", "engine/meta/incarnation.c", "    if (size > NRD_INCARNATION_DIGITS)\n        return MARKER_DAMAGED;", ""),
    ("jsonl_in", "fs/json_check.c", "!has_foreign_space(text, size) &&", ""),
    ("jsonl_out", "fs/jsonl.c", "== '\\n' || out->text->str[i] == '\\r')", "== '\\n')"),
    ("framing_lines", "fs/framing.c", "if (framing->partial->len + length > max)", "if (length > max)"),
    ("framing_jsonl", "fs/framing.c", "    (void)pass_over(&framing->n_skip, request.data, request.size);\n", ""),
    ("framing_bin", "fs/framing.c", "*left -= n;", "*left -= n > 7 ? 7 : n;"),
    ("ack", "engine/queue/receipt.c", "value_of(x << 8 * (8 - n));", "value_of(x << 8 * (8 - n)) + (n == 7);"),
    ("ack", "fs/lines.c", "many && lines->kept_size == 0 ?", "many ?"),
    ("ctl", "fs/lines.c", "if (size == 0 || (size > 1 && text[0] == '0'))", "if (size == 0)"),
    ("time_name", "fs/time_name.c", "(year % 100 != 0 || year % 400 == 0)", "year % 100 != 0"),
    ("manifest", "ctl/manifest.c", "|| !is_canonical(manifest, text, size)", ""),
    ("js_answers", "engine/jetstream/answers.c", "if (rc == 0 && sequence == 0)", "if (rc == 0 && sequence == 12)"),
    ("js_answers", "engine/jetstream/answers.c", "if (g_ascii_iscntrl(*c))", "if (*c == '\\n')"),
    ("js_answers", "engine/jetstream/names.c", "*ret_partition = (uint32_t)number;", "*ret_partition = (uint32_t)number + (number > 99);"),
    ("unpack", "ctl/unpack.c", "if (rc == 0 && crc != file->crc)", "if (rc == 0 && crc == 1)"),
]


def copy_sources():
    shutil.rmtree(SOURCE, ignore_errors=True)
    os.makedirs(SOURCE)
    for name in ("engine", "fs", "mount", "ctl", "tests", "scripts"):
        shutil.copytree(os.path.join(runner.ROOT, name), os.path.join(SOURCE, name), symlinks=True)
    for name in ("meson.build", "meson_options.txt", "VERSION"):
        shutil.copy(os.path.join(runner.ROOT, name), SOURCE)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def caught(target, seconds):
    """After how many executions the target failed; None: it did not."""
    program = os.path.join(FOLDER, "build", "tests", "fuzz", f"fuzz_{target}")
    run = runner.Run(target, runner.Limits(seconds, None), True, program, os.path.join(FOLDER, "found"),
                     os.path.join(FOLDER, "crashes"))
    while not run.poll():
        time.sleep(0.1)
    return None if run.result() is None else run.executions


def try_one(target, file, old, new, seconds):
    path = os.path.join(SOURCE, file)
    with open(path, encoding="utf-8") as source:
        text = source.read()
    if text.count(old) != 1:
        return f"FAIL  what is to be changed stands there {text.count(old)} times"
    write(path, text.replace(old, new))
    try:
        if not runner.build([target], SOURCE, os.path.join(FOLDER, "build"), quiet=True):
            return "FAIL  it does not build"
        start = time.monotonic()
        executions = caught(target, seconds)
    finally:
        write(path, text)
    if executions is None:
        return f"FAIL  not noticed in {seconds:.0f} s"
    return f"ok    noticed after {executions:,} executions, {time.monotonic() - start:.0f} s"


def run(names, seconds):
    chosen = [mutant for mutant in MUTANTS if not names or mutant[0] in names]
    missing = [name for name in (names or runner.targets()) if name not in {mutant[0] for mutant in MUTANTS}]
    copy_sources()
    bad = 0
    for target, file, old, new in chosen:
        outcome = try_one(target, file, old, new, seconds)
        bad += outcome.startswith("FAIL")
        print(f"{target:14} {file:36} {outcome}", flush=True)
    for name in missing:
        print(f"{name:14} no change of the product is known that it has to notice")
    print(f"{len(chosen) - bad} of {len(chosen)} changes noticed")
    shutil.rmtree(SOURCE, ignore_errors=True)
    return 1 if bad or missing else 0
