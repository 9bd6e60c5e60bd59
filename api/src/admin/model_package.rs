//! `model publish DIR`: checks a package, lets its engine compute the golden requests, and stores it.
//!
//! The row of the model is written last, so nobody sees a model whose package is incomplete or whose
//! results differ from the golden ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use assay_core::model::catalog::ModelFile;
use assay_core::model::error_details::Endpoint;
use assay_core::model::package::{
    GOLDEN_FILE, ITEMS_FILE, MANIFEST_FILE, MODEL_FILE, Manifest, PackageName, WEIGHTS_FILE,
};
use assay_core::model::published_model::{Operations, Package, ServedVersion, Serving, Tensors};
use assay_core::model::sequence::{Event, Sequence};
use assay_core::model::served_model::ServedModel;
use assay_core::model::serving::{
    EmbedOptions, GenerateMode, GenerateOptions, HistoryOptions, OnLong, OnUnknown, Pooling,
    PredictOptions,
};
use assay_core::runtime::artifacts::Artifacts;
use assay_core::store::{self, PgPool};
use assay_core::{BestEffort as _, Error, OrgId};
use assay_engine::{ItemTable, Model, ModelSpec, PackageFiles, weights_bytes_max};
use assay_engine_client::Engines;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::admin::commands::{org_id, pool};
use crate::admin::error::{Result, refused};
use crate::admin::golden::{CALL, Golden};
use crate::admin::publish::content_differs;
use crate::settings::Publication;

/// Largest `golden.json`, in bytes.
const GOLDEN_BYTES_MAX: u64 = 8 << 20;

/// Largest `items.ndjson`, in bytes: ten million items with ids of a hundred bytes.
const ITEMS_BYTES_MAX: u64 = 1 << 30;

/// Number of calls that are measured. The fastest one counts: others waited for the machine.
const MEASURED_CALLS: usize = 5;

/// Publishes a folder as a version of a model: for everybody, or for one organization. Publishing
/// the same content again changes nothing.
pub async fn publish(settings: &Publication, folder: &Path, org: Option<&str>) -> Result<Value> {
    let org_id = org.map(org_id).transpose()?;
    let files = read_files(folder)?;
    let Checked {
        mut card,
        serving,
        n_items,
        items,
    } = Checked::new(&files)?;
    let golden = Golden::parse(&files[GOLDEN_FILE])?;
    let pool = pool(&settings.database_url)?;
    if let Some(org_id) = &org_id {
        if store::org::find_name(&pool, org_id).await?.is_none() {
            return Err(refused(format!("there is no organization {org_id}")));
        }
        card.adapted = true;
        if card.adapted_at.is_none() {
            card.adapted_at = Some(store::now(&pool).await?);
        }
    }
    let manifest = Manifest::of(files.iter().map(|(name, content)| (*name, &**content)));
    let manifest_json = serde_json::to_vec(&manifest).map_err(Error::internal)?;
    let name = PackageName::new(org_id.clone(), &card.id, &card.version, &manifest_json)
        .map_err(|_| refused(format!("{MODEL_FILE}: `id` and `version` must not be dots")))?;
    let mut package = Package {
        name: name.to_string(),
        files: manifest.files,
        serving,
        n_items,
        sequence_us: 0,
    };
    if let Some(published) = find(&pool, org_id.as_ref(), &card).await? {
        return already_published(&published, &package);
    }
    let engine = package.serving.engine().to_owned();
    if !settings.engines.iter().any(|one| one.name == engine) {
        return Err(refused(format!(
            "{MODEL_FILE}: `serving.engine` is {engine:?}, which ASSAY_ENGINES does not name"
        )));
    }
    let artifacts = Artifacts::open(&settings.artifacts).await?;
    let computed = async {
        for (file, content) in &files {
            artifacts.put(&name.object(file), content.clone()).await?;
        }
        let manifest_json = Bytes::from(manifest_json);
        artifacts
            .put(&name.object(MANIFEST_FILE), manifest_json)
            .await?;
        let engines = Engines::new(&settings.engines, artifacts.clone(), 1);
        let model = package.served_model(&card)?;
        check_metadata(&engines, &model, &card.endpoints).await?;
        golden.compare(&engines, &model).await?;
        let items = match items.is_empty() {
            true => golden.item_ids(MEASURED_ITEMS),
            false => items,
        };
        measure(&engines, &model, &card.endpoints, &items).await
    };
    package.sequence_us = match computed.await {
        Ok(sequence_us) => sequence_us,
        Err(error) => {
            remove(&pool, &artifacts, org_id.as_ref(), &card, &name).await;
            return Err(error);
        }
    };
    let is_new = match &org_id {
        Some(org_id) => store::catalog::insert_own(&pool, org_id, &card, &package).await?,
        None => {
            let version = ServedVersion {
                file: card.clone(),
                package: Some(package.clone()),
            };
            store::catalog::insert(&pool, &version).await?
        }
    };
    if !is_new && let Some(published) = find(&pool, org_id.as_ref(), &card).await? {
        if published.package.as_ref().map(|one| &one.name) != Some(&package.name) {
            remove(&pool, &artifacts, org_id.as_ref(), &card, &name).await;
        }
        return already_published(&published, &package);
    }
    Ok(result(&card, &package, true))
}

fn result(card: &ModelFile, package: &Package, published: bool) -> Value {
    json!({
        "id": card.id, "version": card.version, "adapted": card.adapted, "published": published,
        "engine": package.serving.engine(), "package": package.name, "n_items": package.n_items,
        "sequence_us": package.sequence_us,
    })
}

/// Returns the result for a version that exists, if its files are the same.
fn already_published(published: &ServedVersion, package: &Package) -> Result<Value> {
    match &published.package {
        Some(before) if before.files == package.files => Ok(result(&published.file, before, false)),
        _ => Err(content_differs(&published.file.id, &published.file.version)),
    }
}

async fn find(
    pool: &PgPool,
    org_id: Option<&OrgId>,
    card: &ModelFile,
) -> Result<Option<ServedVersion>> {
    Ok(match org_id {
        Some(org_id) => store::catalog::own_version(pool, org_id, &card.id, &card.version).await?,
        None => store::catalog::version(pool, &card.id, &card.version).await?,
    })
}

/// Removes the files of a package, unless a model has been published with it meanwhile.
async fn remove(
    pool: &PgPool,
    artifacts: &Artifacts,
    org_id: Option<&OrgId>,
    card: &ModelFile,
    name: &PackageName,
) {
    let name = name.to_string();
    let is_used = match find(pool, org_id, card).await {
        Ok(found) => found
            .and_then(|found| found.package)
            .is_some_and(|package| package.name == name),
        Err(_) => true,
    };
    if !is_used {
        artifacts
            .delete_under(&name)
            .await
            .best_effort("removing the files of a package that was not published");
    }
}

/// Checks that the engine declares the tensors that calls of the model need. Without this check, the
/// first call would fail with a text of the engine, which does not name the remedy.
async fn check_metadata(
    engines: &Engines,
    model: &ServedModel,
    endpoints: &[Endpoint],
) -> Result<()> {
    let engine = &model.engine;
    let differences = engines
        .check_metadata(model, endpoints, CALL.deadline)
        .await
        .map_err(|error| {
            refused(format!(
                "{MODEL_FILE}: `serving`: the metadata of the model in the engine {engine:?} cannot be read: {}",
                error.cause_or_message()
            ))
        })?;
    match differences.is_empty() {
        true => Ok(()),
        false => Err(refused(format!(
            "{MODEL_FILE}: `serving`: the tensors of the model in the engine {engine:?} do not fit: {}",
            differences.join("; ")
        ))),
    }
}

/// Returns the time of a sequence of the context's full length, in microseconds.
async fn measure(
    engines: &Engines,
    model: &ServedModel,
    endpoints: &[Endpoint],
    items: &[String],
) -> Result<i64> {
    if items.is_empty() {
        return Err(refused(format!(
            "{GOLDEN_FILE}: no request has an event; one must, because the model has no item table"
        )));
    }
    let item = |index: usize| Event {
        item_id: items[index % items.len()].as_str().into(),
        r#type: None,
        ts: None,
    };
    let sequence = Sequence {
        sequence_id: "measured".into(),
        events: (0..model.context_length as usize).map(item).collect(),
        options: Some(items.iter().map(|item| item.as_str().into()).collect()),
    };
    let sequence = match model.has_item_table {
        true => Sequence {
            options: None,
            ..sequence
        },
        false => sequence,
    };
    let sequences = std::slice::from_ref(&sequence);
    let history = HistoryOptions {
        on_long: OnLong::Truncate,
        on_unknown: OnUnknown::Skip,
    };
    let mut fastest = Duration::MAX;
    for _ in 0..MEASURED_CALLS {
        let started_at = Instant::now();
        if endpoints.contains(&Endpoint::Predict) {
            let options = PredictOptions {
                history,
                top_k: None,
                exclude_seen: false,
            };
            engines.predict(model, sequences, &options, CALL).await?;
        } else if endpoints.contains(&Endpoint::Embed) {
            let options = EmbedOptions {
                history,
                pooling: Pooling::Last,
                normalize: true,
            };
            engines.embed(model, sequences, &options, CALL).await?;
        } else {
            let options = GenerateOptions {
                history,
                n_events: 1,
                n_continuations: 1,
                mode: GenerateMode::Beam,
                temperature: 1.0,
                seed: 0,
                exclude_seen: false,
            };
            engines.generate(model, sequences, &options, CALL).await?;
        }
        fastest = fastest.min(started_at.elapsed());
    }
    Ok(i64::try_from(fastest.as_micros()).unwrap_or(i64::MAX))
}

/// Reads the files of a folder, by name. The size of each file is checked before it is read, so that
/// a huge one costs nothing.
fn read_files(folder: &Path) -> Result<BTreeMap<&'static str, Bytes>> {
    let unreadable = |name: &str, error: std::io::Error| {
        refused(format!(
            "{}: {name} cannot be read: {error}",
            folder.display()
        ))
    };
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable("the folder", error))?;
    let allowed = [MODEL_FILE, WEIGHTS_FILE, ITEMS_FILE, GOLDEN_FILE];
    for entry in entries {
        let name = entry
            .map_err(|error| unreadable("the folder", error))?
            .file_name();
        if !allowed.iter().any(|allowed| name == *allowed) {
            return Err(refused(format!(
                "{}: {} is no file of a package; a package has {}",
                folder.display(),
                name.display(),
                allowed.join(", ")
            )));
        }
    }
    let read = |name: &'static str, most: u64| {
        let path = folder.join(name);
        let metadata = match std::fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(name, error)),
        };
        if metadata.len() > most {
            return Err(refused(format!(
                "{name} has {} bytes; in this package it may have at most {most}",
                metadata.len()
            )));
        }
        let content = std::fs::read(&path).map_err(|error| unreadable(name, error))?;
        Ok(Some(Bytes::from(content)))
    };
    let missing = |name: &str| {
        refused(format!(
            "{}: {name} is missing; a package has {}, and for the embedded engine {}",
            folder.display(),
            [MODEL_FILE, GOLDEN_FILE].join(", "),
            [WEIGHTS_FILE, ITEMS_FILE].join(", ")
        ))
    };
    let model = read(MODEL_FILE, assay_engine::MODEL_BYTES_MAX as u64)?
        .ok_or_else(|| missing(MODEL_FILE))?;
    let golden = read(GOLDEN_FILE, GOLDEN_BYTES_MAX)?.ok_or_else(|| missing(GOLDEN_FILE))?;
    // Weights of an external engine, or of a model file that is not valid, are refused later. Until
    // then, they may not be large.
    let weights_max =
        ModelSpec::parse(&model).map_or(GOLDEN_BYTES_MAX, |spec| weights_bytes_max(&spec));
    let files = [
        (WEIGHTS_FILE, read(WEIGHTS_FILE, weights_max)?),
        (ITEMS_FILE, read(ITEMS_FILE, ITEMS_BYTES_MAX)?),
        (MODEL_FILE, Some(model)),
        (GOLDEN_FILE, Some(golden)),
    ];
    Ok(files
        .into_iter()
        .filter_map(|(name, content)| Some((name, content?)))
        .collect())
}

/// The files of a package that is well-formed.
struct Checked {
    card: ModelFile,
    serving: Serving,
    n_items: Option<i64>,
    /// Some items that the model knows.
    items: Vec<String>,
}

/// Number of items from which the sequence is made that is measured.
const MEASURED_ITEMS: usize = 100;

impl Checked {
    fn new(files: &BTreeMap<&'static str, Bytes>) -> Result<Self> {
        let bad = |message: String| refused(format!("{MODEL_FILE}: {message}"));
        let mut model: Value =
            serde_json::from_slice(&files[MODEL_FILE]).map_err(|error| bad(error.to_string()))?;
        let serving = model
            .as_object_mut()
            .and_then(|fields| fields.remove("serving"))
            .ok_or_else(|| {
                bad(String::from(
                    "`serving` is missing; it names the engine and the architecture",
                ))
            })?;
        let card = parse_card(model).map_err(bad)?;
        let serving = parse_serving(serving).map_err(bad)?;
        let (n_items, items) = match &serving {
            Serving::Embedded { .. } => count_and_first(load_embedded(files)?.items()),
            Serving::External { .. } => {
                check_external(&card, &serving, files).map_err(bad)?;
                count_and_first(read_items(&card, files)?.as_ref())
            }
        };
        Ok(Self {
            card,
            serving,
            n_items,
            items,
        })
    }
}

/// Returns the number of items of a table, and the first [`MEASURED_ITEMS`] of them.
fn count_and_first(table: Option<&ItemTable>) -> (Option<i64>, Vec<String>) {
    let n_items = table.map(|table| i64::try_from(table.len()).unwrap_or(i64::MAX));
    let items = (0..MEASURED_ITEMS).map_while(|position| table?.item_at(position));
    (n_items, items.map(str::to_owned).collect())
}

fn parse_card(model: Value) -> std::result::Result<ModelFile, String> {
    let card: ModelFile = serde_json::from_value(model).map_err(|error| error.to_string())?;
    let errors: Vec<String> = card
        .field_errors()
        .into_iter()
        .map(|error| format!("{}: {}", error.field, error.message))
        .collect();
    let is_small = |number: i64| u32::try_from(number).is_ok();
    if !errors.is_empty() {
        Err(errors.join("; "))
    } else if !is_small(card.context_length) || !is_small(card.embedding_dim) {
        Err("context_length and embedding_dim must have at most 32 bits".into())
    } else if card.endpoints.is_empty() {
        Err("endpoints: name at least one of predict, generate and embed".into())
    } else {
        Ok(card)
    }
}

fn parse_serving(serving: Value) -> std::result::Result<Serving, String> {
    let is_external = serving.get("name").is_some();
    serde_json::from_value(serving).map_err(|_| {
        let expected = match is_external {
            true => "engine, name, tensors (ids or codes) and operations",
            false => "engine, architecture, dim, layers, heads, norm_eps and activation",
        };
        format!("`serving` must have {expected}")
    })
}

/// Loads the package of the embedded engine, as the engine does.
fn load_embedded(files: &BTreeMap<&'static str, Bytes>) -> Result<Model> {
    let weights = files.get(WEIGHTS_FILE).ok_or_else(|| {
        refused(format!(
            "{WEIGHTS_FILE} is missing; the embedded engine needs it"
        ))
    })?;
    let package = PackageFiles {
        model: &files[MODEL_FILE],
        weights,
        items: files.get(ITEMS_FILE).map(|items| &**items),
    };
    Model::load(&package).map_err(|error| refused(error.to_string()))
}

/// Checks that an external engine computes the operations that the card offers.
fn check_external(
    card: &ModelFile,
    serving: &Serving,
    files: &BTreeMap<&'static str, Bytes>,
) -> std::result::Result<(), String> {
    let Serving::External {
        tensors,
        operations:
            Operations {
                predict,
                generate,
                embed,
            },
        ..
    } = serving
    else {
        return Ok(());
    };
    if files.contains_key(WEIGHTS_FILE) {
        return Err(format!(
            "an external engine has the weights; remove {WEIGHTS_FILE}"
        ));
    }
    if *tensors == Tensors::Codes && !files.contains_key(ITEMS_FILE) {
        return Err(format!(
            "`tensors` is codes, which needs {ITEMS_FILE} to encode items"
        ));
    }
    for endpoint in &card.endpoints {
        let (is_computed, outputs) = match endpoint {
            Endpoint::Predict => (predict.is_some(), "predict"),
            Endpoint::Generate => (
                generate.is_some() || predict.is_some(),
                "generate or predict",
            ),
            Endpoint::Embed => (embed.is_some(), "embed"),
        };
        if !is_computed {
            return Err(format!(
                "endpoints has {endpoint}, but `serving.operations` has no output for {outputs}"
            ));
        }
    }
    Ok(())
}

/// Reads the item table of an external engine's package, if it has one.
fn read_items(
    card: &ModelFile,
    files: &BTreeMap<&'static str, Bytes>,
) -> Result<Option<ItemTable>> {
    let Some(items) = files.get(ITEMS_FILE) else {
        return Ok(None);
    };
    let level_sizes = card.codebook.level_sizes().ok_or_else(|| {
        refused(format!(
            "{MODEL_FILE}: `codebook`: base_size must be divisible by 2 for each further level"
        ))
    })?;
    let table = ItemTable::parse(items, &level_sizes);
    Ok(Some(table.map_err(|error| refused(error.to_string()))?))
}
