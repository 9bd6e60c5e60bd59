//! `assay suite import`: makes the folder of a suite from the bundle of another platform.

mod bundle;
mod competitions;
mod imported;
mod kaggle;
#[cfg(test)]
mod tests;
mod yaml;

use std::collections::BTreeMap;
use std::fs;

use assay_eval::suite::SUITE;
use serde_json::json;

use super::context::Context;
use super::suite_init::{refuse_existing, write_new};
use crate::arguments::{BundleSource, SuiteImport};
use crate::failure::{Exit, Failure, Result};
use crate::output::{View, write_line};
use bundle::Bundle;
use imported::{Choice, Imported};

const IMPORTED: View = View {
    columns: &["suite_id", "version", "metric", "n_items", "folder"],
    id: "suite_id",
};

/// Reads a bundle, and writes the folder if it is then one that `assay suite check` accepts.
pub fn import(context: &Context, import: SuiteImport) -> Result<()> {
    let SuiteImport {
        source,
        bundle: path,
        out,
        answers,
        answer,
        new,
    } = import;
    let suite_toml = out.join(SUITE);
    refuse_existing(&suite_toml)?;
    let mut bundle = Bundle::open(&path, source == BundleSource::Codabench)?;
    let choice = Choice {
        answer,
        new,
        bundle_name: path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    };
    let imported = match (source, answers) {
        (BundleSource::Kaggle, None) => kaggle::read(&mut bundle, choice)?,
        (BundleSource::EvalAi, None) => competitions::read_evalai(&mut bundle, choice)?,
        (BundleSource::Codabench, Some(answers)) => {
            competitions::read_codabench(&mut bundle, choice, &answers)?
        }
        _ => {
            let message = "--answers is for codabench: the other bundles name their answers";
            return Err(Failure::new(Exit::Usage, message));
        }
    };
    let Imported {
        definition,
        table,
        read,
        not_read,
    } = imported;
    let text = definition.to_toml();
    let files: BTreeMap<String, Vec<u8>> = [
        (SUITE.to_owned(), text.into_bytes()),
        (definition.file.clone(), table),
    ]
    .into();
    let suite = definition.check(&files, "the bundle")?;
    let data = out.join(&definition.file);
    refuse_existing(&data)?;
    fs::create_dir_all(&out).map_err(|error| Failure::io(&out.display().to_string(), &error))?;
    // The file that makes the folder a suite is written last.
    write_new(&data, &files[&definition.file])?;
    write_new(&suite_toml, &files[SUITE])?;
    if context.output.is_table() {
        write_line(&format!(
            "{} version {}: {} items in {}",
            suite.suite_id,
            suite.version,
            suite.items.len(),
            out.display()
        ))?;
        let read = read.iter().map(|text| format!("read: {text}"));
        for line in read.chain(not_read.iter().map(|text| format!("not read: {text}"))) {
            write_line(&line)?;
        }
    } else {
        context.output.object(
            IMPORTED,
            &json!({
                "suite_id": suite.suite_id, "version": suite.version, "metric": suite.metric.to_string(),
                "n_items": suite.items.len(), "folder": out.display().to_string(), "read": read, "not_read": not_read,
            }),
        )?;
    }
    definition.warn_of_placeholder(context);
    context
        .messages
        .note(&format!("Next: assay suite check {}", out.display()));
    Ok(())
}
