//! `assay suite init`: writes `suite.toml` next to a table.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write as _};
use std::path::{Path, PathBuf};

use assay_eval::suite::{SUITE, SuiteFiles, looks_personal, shown};
use assay_tables::columns;
use serde_json::json;

use super::context::Context;
use super::suite_definition::{NewDefinition, check_column, own_handle};
use crate::arguments::SuiteInit;
use crate::failure::{Exit, Failure, Result};
use crate::output::View;

const NEW: View = View {
    columns: &["suite_id", "version", "metric", "n_items", "file"],
    id: "suite_id",
};

/// Writes the file, if the folder is then one that `assay suite check` accepts.
pub fn init(context: &Context, init: SuiteInit) -> Result<()> {
    let SuiteInit {
        from,
        answer,
        cluster,
        new,
        folder,
    } = init;
    let (folder, file) = place(&from, folder.as_deref())?;
    let path = folder.join(SUITE);
    refuse_existing(&path)?;
    let names = columns(&file, &folder.as_path())
        .map_err(|error| Failure::new(Exit::InvalidInput, format!("--from: {error}")))?;
    for (argument, name) in [
        ("--answer", Some(&answer)),
        ("--id", new.id.as_ref()),
        ("--cluster", cluster.as_ref()),
    ] {
        if let Some(name) = name {
            check_column(&names, &file, argument, name)?;
        }
    }
    let stem = Path::new(&file).file_stem().unwrap_or_default();
    let stem = stem.to_string_lossy().into_owned();
    let handle = own_handle(context);
    let mut definition = NewDefinition {
        file,
        answer,
        cluster,
        ..NewDefinition::new(new, handle.as_deref(), &stem)
    };
    let roles = [
        Some(&definition.answer),
        definition.id.as_ref(),
        definition.cluster.as_ref(),
    ];
    let has_role = |name: &&String| roles.contains(&Some(*name));
    let (with_role, inputs): (Vec<&String>, Vec<&String>) = names.iter().partition(has_role);
    let personal = |names: &[&String]| -> Vec<String> {
        let personal = names.iter().filter(|name| looks_personal(name));
        personal.map(|name| (*name).clone()).collect()
    };
    let (public, personal) = (personal(&with_role), personal(&inputs));
    let is_personal = |name: &&String| personal.contains(*name);
    definition.inputs = inputs
        .iter()
        .filter(|name| !is_personal(name))
        .map(|name| (*name).clone())
        .collect();
    definition.personal = personal;
    let suite_toml = definition.to_toml();
    let files = WithDefinition {
        suite_toml: &suite_toml,
        folder: &folder,
    };
    let suite = definition.check(&files, "--from")?;
    write_new(&path, suite_toml.as_bytes())?;
    context.output.object(
        NEW,
        &json!({
            "suite_id": suite.suite_id, "version": suite.version, "metric": suite.metric.to_string(), "n_items": suite.items.len(),
            "file": path.display().to_string(),
        }),
    )?;
    if !definition.personal.is_empty() {
        let named: Vec<String> = definition.personal.iter().map(|name| shown(name)).collect();
        context.messages.warn(&format!(
            "{} may identify persons, and everyone who sees the suite sees all inputs; remove the # before drop in {SUITE}",
            named.join(", ")
        ));
    }
    for name in public.iter().filter(|name| **name != definition.answer) {
        context.messages.warn(&format!(
            "{} may identify persons, and everyone who sees the suite sees it; replace its values with pseudonyms",
            shown(name)
        ));
    }
    definition.warn_of_placeholder(context);
    context.messages.note(&format!(
        "Next: assay suite check {}",
        path.parent().unwrap_or(Path::new(".")).display()
    ));
    Ok(())
}

/// Returns the folder and the name of a table.
///
/// # Errors
/// If the user has named another folder: `suite.toml` names a file of its own folder.
fn place(from: &Path, folder: Option<&Path>) -> Result<(PathBuf, String)> {
    let shown = from.display();
    let not_a_file = || Failure::new(Exit::Usage, format!("--from: {shown} is not a file"));
    let name = from.file_name().ok_or_else(not_a_file)?;
    let name = name.to_str().ok_or_else(not_a_file)?.to_owned();
    let own = match from.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let metadata = fs::metadata(from).map_err(|error| Failure::io(&shown.to_string(), &error))?;
    if !metadata.is_file() {
        return Err(not_a_file());
    }
    let Some(folder) = folder else {
        return Ok((own, name));
    };
    let canonical = |path: &Path| {
        path.canonicalize()
            .map_err(|error| Failure::io(&path.display().to_string(), &error))
    };
    let is_same = match canonical(folder) {
        Ok(folder) => folder == canonical(&own)?,
        Err(_) => false,
    };
    if is_same {
        return Ok((folder.to_owned(), name));
    }
    let folder = folder.display();
    let message =
        format!("{shown} is not in {folder}, and {SUITE} names files of its own folder only");
    Err(Failure::new(Exit::Usage, message).with_advice(format!(
        "Copy the file into {folder} and name the copy in --from, or leave {folder} out to write {}.",
        own.join(SUITE).display()
    )))
}

/// Fails if there is a file, a folder or a link of this name.
pub fn refuse_existing(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(_) => Err(exists(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::io(&path.display().to_string(), &error)),
    }
}

/// Writes a file that does not exist yet, and follows no link.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(path),
        _ => Failure::io(&path.display().to_string(), &error),
    })
}

fn exists(path: &Path) -> Box<Failure> {
    let message = format!("{} exists already", path.display());
    Failure::new(Exit::Conflict, message).with_advice("Edit it, or move it away first.")
}

/// The files of a folder with a `suite.toml` that is not written yet.
struct WithDefinition<'f> {
    suite_toml: &'f str,
    folder: &'f Path,
}

impl SuiteFiles for WithDefinition<'_> {
    fn text(&self, name: &str) -> io::Result<Option<String>> {
        match name {
            SUITE => Ok(Some(self.suite_toml.to_owned())),
            name => self.folder.text(name),
        }
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        self.folder.open(name)
    }

    fn file(&self, name: &str) -> io::Result<Option<File>> {
        self.folder.file(name)
    }
}
