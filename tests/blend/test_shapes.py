"""Twenty-five shapes of blends seen in public, written anew: what each must yield."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from blendex.blend.discover import Discovery, discover
from blendex.blend.index_path import sidecar_files
from blendex.blend.world import World

from .fakes import Tree, codes, found, paths, sources

SHAR = {f"/d/shar/{name}/{file}": "" for name in "ab" for file in ("cuts.000000.jsonl", "recording.000000.tar")}


def _kinds(discovery: Discovery) -> dict[str, int]:
    return dict(Counter(source.kind for source in sources(discovery)))


def _told(discovery: Discovery) -> str:
    both = (*discovery.problems, *discovery.warnings)
    return " | ".join(f"{item.message} {item.next_step}" for item in both)


def _weights(discovery: Discovery) -> list[float | None]:
    return [leaf.weight for dataset in discovery.datasets for leaf in dataset.leaves]


TWO_CORPORA = """
input_cfg:
  - type: nemo_tarred
    manifest_filepath: /data/alpha/manifest__OP_0..512_CL_.json
    KEY: /data/alpha/tarred/audio__OP_0..512_CL_.tar
    weight: 0.4
    tags: {lang: en, pnc: no}
  - type: nemo_tarred
    manifest_filepath: /data/beta/manifest__OP_0..128_CL_.json
    KEY: /data/beta/tarred/audio__OP_0..128_CL_.tar
    weight: 0.6
    tags: {lang: pl, pnc: yes}
"""


def test_b01_a_singular_key_is_named_on_both_entries() -> None:
    wrong = found(TWO_CORPORA.replace("KEY", "tarred_audio_filepath"))
    assert codes(wrong) == ["unknown_key", "unknown_key"]
    assert all("tarred_audio_filepaths" in problem.next_step for problem in wrong.problems)
    right = found(TWO_CORPORA.replace("KEY", "tarred_audio_filepaths"))
    assert _kinds(right) == {"jsonl": 642, "nemo_tar": 642}
    assert len(right.datasets) == 2
    assert not right.problems


def test_b02_groups_inside_groups() -> None:
    def leaf(name: str, weight: float, last: int) -> str:
        files = f'manifest_filepath: "/d/{name}/manifest_{{0..{last}}}.json", '
        files += f'tarred_audio_filepaths: "/d/{name}/audio_{{0..{last}}}.tar"'
        return f"    - {{type: nemo_tarred, weight: {weight}, {files}}}\n"

    text = (
        "- type: group\n  weight: 0.7\n  tags: {task: asr}\n  input_cfg:\n"
        + leaf("asr1", 0.6, 3)
        + leaf("asr2", 0.4, 1)
    )
    text += "- type: group\n  weight: 0.3\n  input_cfg:\n" + leaf("ast1", 1.0, 1)
    discovery = found(text)
    assert len(paths(discovery)) == 16
    assert len(discovery.datasets) == 2
    assert _weights(discovery) == [0.6, 0.4, 1.0]
    assert not discovery.problems


def test_b03_shar_groups_with_temperatures() -> None:
    text = """
train_ds:
  reweight_temperature: [1.0, 0.0]
  input_cfg:
    - type: group
      weight: 900
      input_cfg:
        - {type: lhotse_shar, shar_path: /d/shar/a, weight: 600}
        - {type: lhotse_shar, shar_path: /d/shar/b, weight: 300}
    - type: group
      weight: 100
      input_cfg:
        - {type: lhotse_shar, shar_path: /d/shar/gone, weight: 100}
"""
    discovery = found(text, Tree(SHAR))
    assert _kinds(discovery) == {"jsonl": 2, "wds_tar": 2}
    assert codes(discovery) == ["folder_missing"]


def test_b04_several_loaders_in_one() -> None:
    text = """
train_ds:
  multi_config: true
  sampler_weights: {audio: 0.8, text: 0.2}
  audio:
    input_cfg: [{type: nemo_tarred, manifest_filepath: "/d/m_{0..1}.json", tarred_audio_filepaths: "/d/a_{0..1}.tar"}]
    bucket_duration_bins: [3.0, 8.0, 20.0]
  text:
    input_cfg: [{type: txt_pair, source_paths: "/d/t/en_{0..1}.txt", target_paths: "/d/t/de_{0..1}.txt"}]
"""
    discovery = found(text)
    assert len(paths(discovery)) == 4
    assert [leaf.needs_index for dataset in discovery.datasets for leaf in dataset.leaves] == [True, False]


def test_b05_a_group_in_its_own_file_and_pack_settings() -> None:
    text = """
train_ds:
  indexed: true
  index_pack_root: /packs/run7
  input_cfg:
    - {type: group, input_cfg: /blends/english.yaml, index_pack: english.idxpack, weight: 0.5}
    - type: nemo_tarred
      manifest_filepath: /d/de/manifest__OP_0..7_CL_.json
      tarred_audio_filepaths: /d/de/audio__OP_0..7_CL_.tar
      index_pack: german.idxpack
      weight: 0.5
"""
    missing = found(text)
    assert codes(missing) == ["nested_missing"]
    assert len(paths(missing)) == 16
    both = found(text, Tree({"/blends/english.yaml": "- {type: nemo, manifest_filepath: /e.json}"}))
    assert len(paths(both)) == 17
    assert _told(both).count("sets index_pack; the ready blend sets its own") == 2


def test_b06_two_stores_in_one_entry() -> None:
    text = """
train_ds:
  indexes_root: /lustre/idx
  input_cfg:
    - type: nemo_tarred
      manifest_filepath: /lustre/m/set1/manifest__OP_0..3_CL_.json
      tarred_audio_filepaths: ais://speech/set1/audio__OP_0..3_CL_.tar
"""
    places = [sidecar_files(source.kind, source.path)[0] for source in sources(found(text))]
    assert places[0] == "lustre/m/set1/manifest_0.json.idx"
    assert places[-1] == "speech/set1/audio_3.tar.idx"
    assert len(places) == 8


def test_b07_a_whole_resumable_block() -> None:
    text = """
data:
  train_ds:
    indexed: true
    indexes_root: /lustre/idx
    input_cfg:
      - {type: nemo_tarred, manifest_filepath: "/d/m_{0..3}.json", tarred_audio_filepaths: "/d/a_{0..3}.tar"}
      - {type: lhotse, cuts_path: /d/b/cuts.jsonl, input_sampling_rate: 24000, weight: 0.5}
"""
    assert len(paths(found(text))) == 9
    assert not found(text).problems
    assert codes(found(text.replace("cuts.jsonl", "cuts.jsonl.gz"))) == ["path_compressed"]


def test_b08_validation_with_named_sets() -> None:
    text = """
validation_ds:
  force_finite: true
  datasets:
    dev_a: {cuts_path: /d/dev/a.jsonl}
    dev_b: {cuts_path: /d/dev/b.jsonl.gz}
    dev_c: {input_cfg: [{type: nemo, manifest_filepath: /d/dev/c.json}]}
"""
    discovery = found(text)
    assert paths(discovery) == ["/d/dev/a.jsonl", "/d/dev/c.json"]
    assert codes(discovery) == ["path_compressed"]


def test_b09_conversations_made_from_speech_sets() -> None:
    text = """
data:
  train_ds:
    prompt_format: llama3
    input_cfg:
      - {type: lhotse_as_conversation, cuts_path: /d/x/cuts.jsonl.gz, audio_locator_tag: "<|audio|>"}
      - type: lhotse_as_conversation
        manifest_filepath: /d/y/manifest.jsonl.gz
        tarred_audio_filepaths: /d/y/shards/shard-{000000..000009}.tar
        audio_locator_tag: "<|audio|>"
      - {type: lhotse_as_conversation, shar_path: /d/shar/a/}
      - {type: lhotse_as_conversation, input_cfg: /blends/asr.yaml}
"""
    tree = Tree({**SHAR, "/blends/asr.yaml": "- {type: nemo, manifest_filepath: /m.json}"})
    discovery = found(text, tree)
    assert codes(discovery) == ["path_compressed", "path_compressed"]
    assert _kinds(discovery) == {"nemo_tar": 10, "jsonl": 2, "wds_tar": 1}
    assert "do not match" not in _told(discovery)


def test_b10_share_gpt_with_loose_audio() -> None:
    text = f"""
- type: share_gpt
  manifest_filepath: /d/chat/frozen.jsonl
  audio_path_prefix_map:
    /old/disk/: s3://bucket-a/audio/
  audio_locator_tag: <|audio|>
  audio_placeholders: [<sound>, <speech>]
  indexed: true
  indexes_root: /idx/site-b
  index_pack: /packs/site-b/frozen.idxpack
  excluded_manifest_lines: [12, 48]
  excluded_manifest_lines_sha256: "{"0" * 64}"
  approved_exclusion_audit_sha256: "{"0" * 64}"
"""
    discovery = found(text)
    assert paths(discovery) == ["/d/chat/frozen.jsonl"]
    assert not discovery.problems
    assert "excluded_manifest_lines_sha256 is not the digest" in _told(discovery)


def test_b11_share_gpt_in_its_modes() -> None:
    text = """
- type: share_gpt
  manifest_filepath: /d/p/manifests/part-{000..127}.jsonl
  tarred_audio_filepaths: /d/p/audio/part-{000..127}.tar
  tar_lookup_mode: paired
- type: share_gpt
  manifest_filepath: /d/c/all.jsonl
  tarred_audio_filepaths: /d/c/audio_{00..63}.tar
  tar_lookup_mode: collection
  tar_routing_filepath: all.sgroute
- type: share_gpt_webdataset
  data_dir: /d/wds
  wds_sample_index_version: 2
"""
    discovery = found(text, Tree({"/d/wds/wids-meta.json": '{"shardlist": [{"url": "s-{0..4}.tar"}]}'}))
    assert _kinds(discovery) == {"jsonl": 129, "nemo_tar": 192, "sharegpt_route": 1, "wds_tar_v2": 5}
    assert not discovery.problems
    assert not discovery.warnings


def test_b12_values_to_fill_in() -> None:
    text = """
model:
  audio_locator_tag: "<|audio|>"
data:
  train_ds:
    input_cfg:
      - type: lhotse_as_conversation
        cuts_path: ???
        audio_locator_tag: ${model.audio_locator_tag}
  validation_ds:
    datasets:
      one:
        shar_path: ???
"""
    discovery = found(text)
    assert codes(discovery) == ["missing_key", "missing_key"]
    assert [problem.pointer for problem in discovery.problems] == [
        ("data", "train_ds", "input_cfg", 0),
        ("data", "validation_ds", "datasets", "one"),
    ]


def test_b13_input_cfg_one_level_lower() -> None:
    text = """
model:
  train_ds:
    dataset:
      shuffle_buffer_size: 20_000
      input_cfg:
        - {type: lhotse_shar, shar_path: /d/shar/a, weight: 1.0, tags: {tokenizer_names: [en_chartok]}}
"""
    assert _kinds(found(text, Tree(SHAR))) == {"jsonl": 1, "wds_tar": 1}


def test_b14_a_key_that_nothing_reads() -> None:
    (first, second) = found("- {input_path: /d/tts/shards/, type: nemo_tarred, weight: 1.0}").problems
    assert "nemo_tarred needs manifest_filepath; the entry has input_path" in first.message
    assert "nemo_tarred needs tarred_audio_filepaths" in second.message


def test_b15_older_key_names_in_a_wrapper() -> None:
    text = """
- input_cfg:
  - manifest_filepath: /d/k/chat.json
    type: multimodal_conversation
    audio_locator: "<audio_here>"
  - manifest_filepath: /d/k/one.json
    tags:
      default_context: Write down what is said
    type: nemo
  - manifest_filepath: /d/k/sharded/manifest__OP_1..128_CL_.json
    KEY: /d/k/audio__OP_1..128_CL_.tar
    type: nemo_tarred
  type: group
"""
    wrong = found(text.replace("KEY", "tarred_audio_filepath"))
    assert _kinds(wrong) == {"jsonl": 130}
    assert codes(wrong) == ["unknown_key"]
    assert "audio_locator_tag" in _told(wrong)
    assert _kinds(found(text.replace("KEY", "tarred_audio_filepaths"))) == {"jsonl": 130, "nemo_tar": 128}


def test_b16_sections_without_input_cfg() -> None:
    text = """
model:
  train_ds:
    use_lhotse: true
    shar_path: ???
  validation_ds: {use_lhotse: true, cuts_path: /d/val/cuts.jsonl}
  test_ds:
    cuts_path: /d/test/cuts.jsonl
    rir_path: /d/rir/recordings.jsonl
    noise_path: /d/noise/cuts.jsonl
"""
    discovery = found(text)
    assert paths(discovery) == ["/d/val/cuts.jsonl", "/d/test/cuts.jsonl"]
    assert codes(discovery) == ["missing_key"]
    assert "rir_path (/d/rir/recordings.jsonl) names auxiliary audio" in _told(discovery)
    assert "noise_path (/d/noise/cuts.jsonl) names auxiliary audio" in _told(discovery)


def test_b17_buckets_as_lists_of_lists() -> None:
    text = """
train_ds:
  is_tarred: true
  manifest_filepath: [[/d/bucket1/manifest.json], [/d/bucket2/manifest.json]]
  tarred_audio_filepaths: [[/d/bucket1/audio__OP_0..255_CL_.tar], [/d/bucket2/audio__OP_0..255_CL_.tar]]
"""
    assert _kinds(found(text)) == {"jsonl": 2, "nemo_tar": 512}
    assert "literally in /d/t/*.tar" in _told(found(text.replace("/d/bucket1/audio__OP_0..255_CL_.tar", "/d/t/*.tar")))


def test_b18_corpus_list_of_a_pipeline() -> None:
    text = """
- input_cfg:
    - corpus: one
      language: en
      type: nemo_tarred
      shard_key_prefix: one/en
      manifest_filepath: /d/one/en/manifest__OP_0..15_CL_.json
      tarred_audio_filepaths: /d/one/en/audio__OP_0..15_CL_.tar
    - corpus: two
      language: de
      type: nemo
      manifest_filepath: /d/two/de/rows.json
"""
    discovery = found(text)
    assert len(paths(discovery)) == 33
    assert "shard_key_prefix is a key of another program" in _told(discovery)


def test_b19_a_product_of_ranges() -> None:
    text = """
input_cfg:
  - type: nemo_tarred
    manifest_filepath: s3://speech/set/bucket_OP_1..8_CL_/manifest__OP_0..4095_CL_.json
    tarred_audio_filepaths: s3://speech/set/bucket_OP_1..8_CL_/audio__OP_0..4095_CL_.tar
"""
    discovery = found(text)
    assert len(paths(discovery)) == 65_536
    (leaf,) = discovery.datasets[0].leaves
    assert leaf.manifests[4096].path == "s3://speech/set/bucket2/manifest_0.json"
    assert leaf.tars[4096].path == "s3://speech/set/bucket2/audio_0.tar"
    assert "The shard number 0 comes again" in _told(discovery)


def test_b20_a_list_at_the_top() -> None:
    def entry(lang: str) -> str:
        return (
            f"- type: nemo_tarred\n  manifest_filepath: /d/{lang}/sharded_manifests/manifest__OP_0..255_CL_.json\n"
            f"  tarred_audio_filepaths: /d/{lang}/audio__OP_0..255_CL_.tar\n  weight: 1\n  tags: {{lang: {lang}}}\n"
        )

    discovery = found(entry("hi") + entry("ta"))
    assert len(paths(discovery)) == 1024
    assert len(discovery.datasets) == 2


def test_b21_weighted_lists() -> None:
    text = """
data:
  train_ds:
    shar_path:
      - [/d/shar/a, 1.0]
      - [/d/shar/b, 0.25]
    bucket_duration_bins: [99, 110, ..., 1024]
  validation_ds:
    datasets:
      val_set:
        manifest_filepath: [[/d/v/one.json, 0.7], [/d/v/two.json, 0.3]]
"""
    discovery = found(text, Tree(SHAR))
    assert len(paths(discovery)) == 6
    assert paths(discovery)[-2:] == ["/d/v/one.json", "/d/v/two.json"]
    assert not discovery.problems


def test_b22_environment_in_paths_and_includes() -> None:
    text = """
train_ds:
  input_cfg:
    - {type: group, weight: 0.5, input_cfg: "${oc.env:MANIFEST_ROOT}/train_en.yaml"}
    - {type: group, weight: 0.5, input_cfg: "${oc.env:MANIFEST_ROOT}/train_de.yaml"}
    - {type: lhotse_shar, shar_path: "${oc.env:LOCAL_DATASETS_DIR,/d/shar}/a"}
"""
    discovery = found(text, Tree(SHAR))
    assert codes(discovery) == ["unknown_variable"] * 2
    assert len(paths(discovery)) == 2
    files = {f"/m/train_{lang}.yaml": f"- {{type: nemo, manifest_filepath: /{lang}.json}}" for lang in ("en", "de")}
    told = found(text, Tree({**SHAR, **files}), env={"MANIFEST_ROOT": "/m"})
    assert len(paths(told)) == 4


def test_b23_shar_as_a_map_of_fields() -> None:
    text = """
- corpus: one
  shar_path:
    cuts: s3://ONE/lhotse_shar/cuts._OP_*_CL_.jsonl.gz
  type: lhotse_shar
  weight: 0.2
- type: lhotse_shar
  weight: 0.8
  shar_path:
    cuts: s3://two/shar/cuts._OP_000000..000003_CL_.jsonl
    recording: s3://two/shar/recording._OP_000000..000003_CL_.tar
    target_audio: s3://two/shar/target_audio._OP_000000..000003_CL_.tar
"""
    discovery = found(text)
    assert codes(discovery) == ["path_compressed"]
    assert "{*}" in _told(discovery)
    assert _kinds(discovery) == {"jsonl": 4, "wds_tar": 8}
    short = found(text.replace("recording._OP_000000..000003", "recording._OP_000000..000002"))
    assert "differ in their number of shards" in _told(short)


def test_b24_three_levels_written_by_a_script() -> None:
    text = """
input_cfg:
  - type: group
    weight: 0.4000   # L1 task
    input_cfg:
      - type: group
        weight: 0.7000   # L2 language
        input_cfg:
          - {type: multimodal_conversation, weight: 0.6, manifest_filepath: /d/mm/en/a.jsonl}
          - {type: multimodal_conversation, weight: 0.4, manifest_filepath: /d/mm/en/b.jsonl}
      - type: group
        weight: 0.3000
        input_cfg:
          - type: multimodal_conversation
            # only set, so no weight
            manifest_filepath: /d/mm/de/c.jsonl
  - type: nemotron_text_converation
    weight: 0.6000
    paths: "/d/text/part_{00..01}.jsonl"
"""
    discovery = found(text)
    assert len(paths(discovery)) == 5
    assert len(discovery.datasets) == 2
    assert not discovery.problems
    assert not discovery.warnings
    assert "<path>" in _told(found(text.replace("/d/mm/de/c.jsonl", "<path>")))


def test_b25_pipes_and_overrides() -> None:
    text = """
train_ds:
  input_cfg:
    - type: nemo_tarred
      manifest_filepath: /d/m/manifest_{0..127}.json
      tarred_audio_filepaths: "pipe:ais get ais://speech/audio_{0..127}.tar -"
    - type: nemo_tarred_to_duplex
      manifest_filepath: "/d/dup/manifest_{0..1}.json"
      tarred_audio_filepaths: "/d/dup/audio_{0..1}.tar"
"""
    discovery = found(text)
    assert _kinds(discovery) == {"jsonl": 130, "nemo_tar": 2}
    (problem,) = discovery.problems
    assert "ais://speech/audio_{0..127}.tar" in problem.next_step


@pytest.mark.parametrize("posted", ["blend.yaml", "/cfg/blend.yaml"])
def test_an_empty_pattern_of_every_form_is_told(posted: str) -> None:
    """Upstream yields nothing and exit status 0 for each of these."""
    entries: list[Any] = [
        "{type: bogus, manifest_filepath: /a.json}", "/b.yaml", "{type: lhotse_shar, shar_path: s3://b/shar}",
        "{type: nemo, manifest_filepath: ''}", "{type: lhotse_shar, shar_path: /none}", "{manifest_filepath: /a.json}",
    ]  # fmt: skip
    text = "".join(f"- {entry}\n" for entry in entries)
    discovery = discover(text.encode(), posted, World(base="/cfg"), Tree())
    assert {problem.pointer for problem in discovery.problems} == {(number,) for number in range(len(entries))}
