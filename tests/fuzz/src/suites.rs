//! Operators' input: the three files in a suite's folder, separated by `%%` lines, and a model's
//! card.

use std::collections::HashSet;

use assay_core::model::catalog::ModelFile;
use assay_eval::clusters::Average;
use assay_eval::suite::{
    FolderItem, Groups, Protection, SequencePaths, SkillKey, SuiteFolder, SuiteLink, SuiteMetadata,
};
use assay_eval::{Answer, Family};
use serde_json::{Value, json};

/// An accepted suite is complete and consistent, and equals itself after being written and read; an
/// error names its file.
pub fn suites(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let parts: Vec<&str> = text.split("\n%%\n").collect();
    if let [suite, items, answers] = parts[..] {
        match SuiteFolder::parse(suite, items, answers) {
            Ok(folder) => assert_round_trip(&folder),
            Err(error) => {
                let message = error.to_string();
                assert!(
                    ["suite.toml", "items.ndjson", "answers.ndjson"]
                        .iter()
                        .any(|file| message.starts_with(file)),
                    "{message}"
                );
            }
        }
    }
    if let Ok(file) = serde_json::from_str::<ModelFile>(text) {
        let again: ModelFile =
            serde_json::from_value(serde_json::to_value(&file).unwrap()).unwrap();
        assert_eq!(file.field_errors(), again.field_errors());
    }
}

fn assert_round_trip(folder: &SuiteFolder) {
    let SuiteFolder {
        suite_id,
        version,
        metric,
        per_item_feedback,
        metadata,
        visibility,
        // `protection` has it.
        access: _,
        protection,
        quantiles,
        sequence,
        labels,
        cluster,
        average,
        cluster_is_hidden,
        n_clusters,
        slices,
        slice_min,
        skill,
        baselines,
        items,
        retest,
        catalog,
        floor,
        warnings: _,
        content_sha256,
    } = folder;
    assert_eq!(
        n_clusters.is_some(),
        cluster.as_ref().is_some_and(|key| key.field().is_some())
    );
    assert!(n_clusters.is_some() || !cluster_is_hidden);
    assert!(*average == Average::Item || *n_clusters >= Some(10));
    assert!((50..=100_000).contains(slice_min));
    assert_eq!(quantiles.is_some(), metric.family() == Family::Quantiles);
    // Their files are not among the three.
    assert!(baselines.is_empty() && retest.is_none() && catalog.is_none());
    assert!(labels.is_empty() || metric.takes_options());
    assert!(floor.is_none() || items.iter().all(|item| item.n.is_some()));
    for field in slices {
        assert!((2..=20).contains(&field.slices.len()));
        assert!(field.slices.iter().all(|slice| slice.n >= *slice_min));
    }
    assert!(!items.is_empty());
    let mut seen = HashSet::new();
    for FolderItem {
        item_id,
        input,
        answer,
        n,
        groups: _,
        hidden_groups: _,
        cluster,
        slices: codes,
        skill_group,
        is_sealed: _,
        line: _,
    } in items
    {
        assert_eq!(cluster.is_some(), n_clusters.is_some());
        assert_eq!(codes.len(), slices.len());
        let within = skill.as_ref().and_then(|key| key.within.as_ref());
        assert_eq!(skill_group.is_some(), within.is_some());
        assert!(n.is_none_or(|n| (1..=1_000_000_000).contains(&n)));
        assert!(
            seen.insert(item_id) && (1..=512).contains(&item_id.len()) && !item_id.contains('\0')
        );
        assert!(
            serde_json::from_str::<Value>(input.get())
                .unwrap()
                .is_object()
        );
        assert!(
            !Answer::parse(answer.get(), metric)
                .unwrap()
                .relevant()
                .is_empty()
        );
    }
    let head = [
        ("suite_id", json!(suite_id.as_str())),
        ("version", json!(version)),
        ("metric", json!(metric.to_string())),
        ("per_item_feedback", json!(per_item_feedback)),
        ("release", json!(protection.policy.to_string())),
        ("access", json!(protection.access.to_string())),
        ("board", json!(protection.board.to_string())),
    ];
    let mut suite: String = head
        .iter()
        .map(|(name, value)| format!("{name} = {value}\n"))
        .collect();
    let Protection {
        policy: _,
        clip,
        max_submissions_per_day,
        max_submissions,
        access: _,
        closes_at,
        seal_seed,
        board: _,
    } = protection;
    let float = |number: f64| {
        if number.fract() == 0.0 {
            format!("{number:.1}")
        } else {
            number.to_string()
        }
    };
    let others = [
        max_submissions_per_day.map(|max| format!("max_submissions_per_day = {max}\n")),
        max_submissions.map(|max| format!("max_submissions = {max}\n")),
        clip.map(|clip| format!("clip = [{}, {}]\n", float(clip.low), float(clip.high))),
        closes_at.as_ref().map(|at| format!("closes_at = {at}\n")),
        seal_seed.as_ref().map(|seed| {
            format!(
                "seal_seed = {}\n",
                json!(seed).to_string().replace('\u{7f}', "\\u007f")
            )
        }),
    ];
    suite.extend(others.into_iter().flatten());
    // TOML strings are written like JSON strings, except for one character.
    let toml_text = |text: &str| json!(text).to_string().replace('\u{7f}', "\\u007f");
    let SuiteMetadata {
        title,
        description,
        license,
        citation,
        links,
        tags,
        contact,
    } = metadata;
    let texts = [
        ("title", title),
        ("description", description),
        ("license", license),
        ("citation", citation),
        ("contact", contact),
    ];
    for (key, text) in texts {
        let line = text
            .iter()
            .map(|text| format!("{key} = {}\n", toml_text(text)));
        suite.extend(line);
    }
    for SuiteLink { label, url } in links.iter().flatten() {
        assert!(!label.is_empty() && url.starts_with("https://"));
    }
    if let Some(tags) = tags {
        suite += &format!("tags = {}\n", json!(tags));
    }
    if let Some(visibility) = visibility {
        suite += &format!("visibility = \"{visibility}\"\n");
    }
    suite.extend(
        cluster
            .iter()
            .map(|key| format!("cluster = {}\n", toml_text(key.as_str()))),
    );
    if let Some(SkillKey { baseline, within }) = skill {
        let within = within.as_ref().map(|field| toml_text(field.as_str()));
        let within = within.map_or_else(String::new, |field| format!(", within = {field}"));
        suite += &format!("skill = {{ baseline = \"{baseline}\"{within} }}\n");
    }
    if let Some(levels) = quantiles {
        let names: Vec<&str> = levels.names().collect();
        suite += &format!("quantiles = [{}]\n", names.join(", "));
    }
    if !labels.is_empty() {
        let labels: Vec<String> = labels.iter().map(|label| toml_text(label)).collect();
        suite += &format!("labels = [{}]\n", labels.join(", "));
    }
    if let Some(SequencePaths { events, options }) = sequence {
        suite += &format!("[sequence]\nevents = {}\n", toml_text(events));
        suite.extend(
            options
                .iter()
                .map(|options| format!("options = {}\n", toml_text(options))),
        );
    }
    let line = |item: &FolderItem, name: &str, value: &str, groups: Option<&Groups>| {
        let groups = groups.map_or_else(String::new, |groups| {
            format!(", \"groups\": {}", groups.to_json())
        });
        let people = item.n.filter(|_| name == "answer");
        let people = people.map_or_else(String::new, |n| format!(", \"n\": {n}"));
        format!(
            "{{\"item_id\": {}, \"{name}\": {value}{people}{groups}}}\n",
            json!(item.item_id)
        )
    };
    // A value never contains a line feed, but it may contain a carriage return.
    type Of = fn(&FolderItem) -> (&str, Option<&Groups>);
    let of = |name: &str, of: Of| {
        let line = |item| {
            let (value, groups) = of(item);
            line(item, name, value, groups)
        };
        items.iter().map(line).collect::<String>()
    };
    let again = SuiteFolder::parse(
        &suite,
        &of("input", |item| (item.input.get(), item.groups.as_ref())),
        &of("answer", |item| {
            (item.answer.get(), item.hidden_groups.as_ref())
        }),
    );
    let again = again.unwrap_or_else(|error| panic!("{error}\n{suite}"));
    assert_eq!(again.content_sha256, *content_sha256);
    assert_eq!(again.items.len(), items.len());
}
