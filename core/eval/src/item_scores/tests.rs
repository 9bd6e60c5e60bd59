use std::ops::Range;

use sha2::{Digest as _, Sha256};

use super::builder::EXACT_MAX;
use super::format::Width;
use super::*;

fn bytes(scores: &ItemScores) -> Vec<u8> {
    let mut bytes = Vec::new();
    scores.write(|piece| bytes.extend_from_slice(piece));
    assert_eq!(scores.encoded_len(), bytes.len() as u64);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the scores for an item page from ranges, as the API does.
fn page(bytes: &[u8], items: Range<u64>) -> Vec<f64> {
    let header = Header::read(bytes).unwrap();
    let (codes, right) = header.ranges(items.clone());
    let section = |range: Range<u64>| &bytes[range.start as usize..range.end as usize];
    let values = header
        .values(
            items.clone(),
            &bytes[..header.dictionary_range().end as usize],
            section(codes),
        )
        .unwrap();
    let rights = right.map_or_else(Vec::new, |right| {
        header.rights(items, section(right)).unwrap()
    });
    header.scores(values, &rights)
}

/// Scores, where every seventh has no prediction, set from the last item to the first.
fn scores(n: usize, few_values: bool, worst: f64, value: &dyn Fn(usize) -> f64) -> ItemScores {
    let mut scores = ItemScoresBuilder::new(Kind::Scores, n, worst, few_values);
    for item in (0..n).rev().filter(|item| item % 7 != 3) {
        assert!(!scores.mark_predicted(item));
        scores.set(item, value(item));
    }
    scores.finish()
}

#[test]
fn scores_are_stored_exactly() {
    for (distinct, bits) in [
        (2, 1),
        (3, 8),
        (256, 8),
        (257, 16),
        (16_384, 16),
        (16_385, 64),
    ] {
        let n = 40_000;
        let value = |item: usize| {
            if item % distinct < 2 {
                (item % distinct) as f64
            } else {
                1.0 / (item % distinct) as f64
            }
        };
        let scores = scores(n, true, 0.0, &value);
        let expected: Vec<f64> = (0..n)
            .map(|item| if item % 7 == 3 { 0.0 } else { value(item) })
            .collect();
        let bytes = bytes(&scores);
        let read = ItemScores::read(&bytes).unwrap();
        assert_eq!(read, scores);
        assert!(
            (0..n).all(|item| read.value(item) == expected[item]
                && read.is_predicted(item) == (item % 7 != 3))
        );
        let header = Header::read(&bytes).unwrap();
        let length = header.dictionary_range().end as usize + (bits + 1) * n / 8;
        assert_eq!(bytes.len(), length, "{distinct}");
        for items in [0..1, 0..9, 3..17, 7..8, 39_990..40_000, 0..n] {
            assert_eq!(
                page(&bytes, items.start as u64..items.end as u64),
                expected[items],
                "{distinct}"
            );
        }
        for at in [0, 8, 9, 13, 16, 20, 23, length - 1] {
            let mut corrupt = bytes.clone();
            corrupt[at] ^= 0x40;
            assert!(ItemScores::read(&corrupt).is_err(), "{at}");
        }
        assert!(ItemScores::read(&bytes[..bytes.len() - 1]).is_err());
    }
}

#[test]
fn second_prediction_of_item_is_reported() {
    let mut scores = ItemScoresBuilder::new(Kind::Scores, 2, 0.0, true);
    assert!(!scores.mark_predicted(0));
    assert!(scores.mark_predicted(0));
}

#[test]
fn large_value_widens_rounded_scores() {
    let n = EXACT_MAX + 1;
    let mut scores = ItemScoresBuilder::new(Kind::Scores, n, 5.0, false);
    scores.set(1, 0.1);
    assert_eq!(
        (scores.value(0), scores.value(1)),
        (5.0, f64::from(0.1_f32))
    );
    scores.set(2, 1e50);
    let scores = scores.finish();
    assert_eq!(
        (
            scores.codes.width(),
            scores.value(0),
            scores.value(1),
            scores.value(2)
        ),
        (Width::F64, 5.0, f64::from(0.1_f32), 1e50)
    );
    let width = |kind, worst| {
        ItemScoresBuilder::new(kind, n, worst, false)
            .finish()
            .codes
            .width()
    };
    assert_eq!(width(Kind::Scores, 5.0), Width::F32);
    assert_eq!(width(Kind::Confidences, -1.0), Width::F64);
}

#[test]
fn labels_and_confidences_store_rights() {
    let n = 70_001;
    let mut labels = ItemScoresBuilder::new(Kind::Hits, n, 0.0, true);
    let mut confidences = ItemScoresBuilder::new(Kind::Confidences, n, -1.0, false);
    for item in (0..n).rev() {
        labels.set(item, 1.0 / (n - item) as f64);
    }
    for item in (0..n).rev().filter(|item| item % 3 != 0) {
        labels.mark_predicted(item);
        confidences.mark_predicted(item);
        confidences.set(item, 0.75);
        if item % 2 == 0 {
            labels.mark_right(item);
            confidences.mark_right(item);
        }
    }
    let labels = labels.finish();
    let confidences = confidences.finish();
    assert!((0..n).all(|item| labels.value(item) == 1.0 / (n - item) as f64));
    for scores in [&labels, &confidences] {
        assert_eq!(ItemScores::read(&bytes(scores)).unwrap(), *scores);
    }
    assert_eq!(page(&bytes(&labels), 1..6), [0.0, 1.0, 0.0, 1.0, 0.0]);
    assert_eq!(
        page(&bytes(&confidences), 1..6),
        [0.75, 0.25, 1.0, 0.25, 0.75]
    );
}

#[test]
fn bytes_of_kinds_and_widths_are_fixed() {
    let kinds = [Kind::Scores, Kind::Hits, Kind::Parts, Kind::Confidences];
    assert_eq!(kinds.map(|kind| kind as u8), [0, 1, 2, 3]);
    assert_eq!(Width::ALL.map(|width| width as u8), [0, 1, 2, 3, 4, 5]);
    let header = |kind: u8, width: u8| {
        let mut header = [0; HEADER_BYTES as usize];
        header[..10]
            .copy_from_slice(&[b'A', b'S', b'S', b'A', b'Y', b'I', b'S', b'1', kind, width]);
        Header::read(&header)
    };
    for kind in kinds {
        for width in Width::ALL {
            let read = header(kind as u8, width as u8).unwrap();
            assert_eq!((read.kind, read.width), (kind, width));
        }
    }
    assert!(header(4, 0).is_err() && header(0, 6).is_err());
}

/// Hits whose values are set after all labels, as the scorer does.
fn hits(n: usize) -> ItemScores {
    let mut scores = ItemScoresBuilder::new(Kind::Hits, n, 0.0, true);
    for item in (0..n).rev().filter(|item| item % 3 != 0) {
        scores.mark_predicted(item);
        if item % 2 == 0 {
            scores.mark_right(item);
        }
    }
    (0..n).for_each(|item| scores.set(item, 1.0 / (n - item) as f64));
    scores.finish()
}

/// Nine items; three are predicted.
fn nine(kind: Kind, worst: f64) -> ItemScores {
    let mut scores = ItemScoresBuilder::new(kind, 9, worst, false);
    for item in [8, 1, 4] {
        scores.mark_predicted(item);
        scores.set(item, 0.75 + item as f64);
        if kind.has_right() && item == 4 {
            scores.mark_right(item);
        }
    }
    scores.finish()
}

/// The expected bytes were written by an earlier version. Stored objects must stay readable, and
/// the same job must write the same bytes.
#[test]
fn small_objects_are_written_byte_for_byte() {
    for (object, expected) in [
        (
            scores(10, true, 0.0, &|item| (item % 2) as f64),
            concat!(
                "415353415949533100000000020000000a00000000000000171d329c00000000",
                "0000000000000000000000000000000000000000000000000000000000000000",
                "0000000000000000000000000000f03fa202f703",
            ),
        ),
        (
            scores(10, true, 0.0, &|item| 1.0 / (item % 4 + 1) as f64),
            concat!(
                "415353415949533100010000050000000a00000000000000c1ccd3cc00000000",
                "0000000000000000000000000000000000000000000000000000000000000000",
                "0000000000000000000000000000d03f555555555555d53f000000000000e03f",
                "000000000000f03f04030200040302010403f703",
            ),
        ),
        (
            hits(5),
            concat!(
                "415353415949533101010000050000000500000000000000c116d06c00000000",
                "0000000000000000000000000000000000000000000000000000000000000000",
                "9a9999999999c93f000000000000d03f555555555555d53f000000000000e03f",
                "000000000000f03f00010203041614",
            ),
        ),
        (
            nine(Kind::Parts, 0.0),
            concat!(
                "4153534159495331020500000000000009000000000000004b0114e600000000",
                "0000000000000000000000000000000000000000000000000000000000000000",
                "0000000000000000000000000000fc3f00000000000000000000000000000000",
                "0000000000001340000000000000000000000000000000000000000000000000",
                "00000000008021401201",
            ),
        ),
        (
            nine(Kind::Confidences, -1.0),
            concat!(
                "41535341594953310305000000000000090000000000000010dd80cd00000000",
                "0000000000000000000000000000000000000000000000000000000000000000",
                "000000000000f0bf000000000000fc3f000000000000f0bf000000000000f0bf",
                "0000000000001340000000000000f0bf000000000000f0bf000000000000f0bf",
                "00000000008021401201",
                "1000",
            ),
        ),
    ] {
        assert_eq!(hex(&bytes(&object)), expected);
        assert_eq!(ItemScores::read(&bytes(&object)).unwrap(), object);
    }
}

/// SHA-256 for objects whose width depends on the item count and the distinct values, as above.
#[test]
fn large_objects_are_written_byte_for_byte() {
    let reciprocal = |item: usize| 1.0 / (item + 1) as f64;
    for (object, width, expected) in [
        (
            scores(3_000, true, 0.0, &|item| 1.0 / (item % 300 + 1) as f64),
            Width::U16,
            "918eabdb9e797954b9a98b372ff6c91ae9a52c3d6bd00bb8953c296fd1f2a4ca",
        ),
        (
            scores(40_000, true, 0.0, &reciprocal),
            Width::F64,
            "28e595a9b4b341d944e17da69255e20ef85fc24a6a35ace95ea385c56aff87a7",
        ),
        (
            scores(EXACT_MAX + 1, false, 5.0, &reciprocal),
            Width::F32,
            "1804ddb2f35f5e597e44307b4c8f2995a80df2ef1b946d3adf05d7e9db504429",
        ),
        (
            scores(EXACT_MAX + 1, true, 0.0, &reciprocal),
            Width::F32,
            "0197cdff3f683013cf8820583ca942ed58c2f2a63f9374a1b78b06071883d914",
        ),
        (
            scores(EXACT_MAX + 1, false, 5.0, &|item| {
                if item == 9 { 1e50 } else { 0.1 }
            }),
            Width::F64,
            "c596e5bf483c6e9a081e0606fbcb62d939a6b3e2692cbdecbb0538e07b64fa9e",
        ),
        (
            hits(70_001),
            Width::F64,
            "0e079f1c78d10b71a4eddc4cdf708b19bb722aa3d7b1954f728898e8da410822",
        ),
    ] {
        assert_eq!(object.codes.width(), width);
        assert_eq!(hex(&Sha256::digest(bytes(&object))), expected);
    }
}
