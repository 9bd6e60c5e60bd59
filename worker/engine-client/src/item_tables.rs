//! The item tables for models whose engine reads codes, cached in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assay_core::model::error::{Error, Result};
use assay_core::model::package::{ITEMS_FILE, MANIFEST_FILE, Manifest, PackageName};
use assay_core::model::served_model::ServedModel;
use assay_core::runtime::artifacts::Artifacts;
use assay_engine::ItemTable;
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::OnceCell;

/// Maximum memory of all tables, in bytes. The most recently used one stays, whatever its size.
const BYTES_MAX: usize = 256 << 20;

/// A package's item table.
#[derive(Debug)]
pub struct Items {
    /// The items by code.
    pub table: ItemTable,
    /// Each file item's position in the table, in file order. Engines name
    /// items by their lines.
    by_line: Vec<u32>,
}

impl Items {
    /// Reads `items.ndjson`. The error is a sentence.
    pub fn parse(ndjson: &[u8], level_sizes: &[usize]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Line<'l> {
            #[serde(borrow)]
            item_id: std::borrow::Cow<'l, str>,
        }
        let table = ItemTable::parse(ndjson, level_sizes).map_err(|error| error.to_string())?;
        let mut by_line = Vec::with_capacity(table.len());
        let lines = ndjson.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.trim_ascii().is_empty()) {
            let line: Line<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
            let position = table.position_of(&line.item_id);
            let position = position.and_then(|position| u32::try_from(position).ok());
            by_line.push(position.ok_or("an item is not in the table")?);
        }
        Ok(Self { table, by_line })
    }

    /// Returns the item on a line in the file, counted from 0 without empty lines.
    pub fn id(&self, line: i64) -> Option<&str> {
        let position = self.by_line.get(usize::try_from(line).ok()?)?;
        self.table.item_at(*position as usize)
    }

    fn bytes(&self) -> usize {
        self.table.bytes() + self.by_line.capacity() * size_of::<u32>()
    }
}

type Cell = Arc<OnceCell<Arc<Items>>>;

/// An item table cache by package. The least recently used ones are removed first. Clones share
/// it.
#[derive(Clone)]
pub struct ItemTables {
    artifacts: Artifacts,
    entries: Arc<Mutex<Entries>>,
}

#[derive(Default)]
struct Entries {
    /// The number of each entry's last request, and the entry.
    by_package: HashMap<String, (u64, Cell)>,
    /// The request count so far.
    requests: u64,
}

impl ItemTables {
    /// Creates an empty cache for tables that are read from `artifacts`.
    pub fn new(artifacts: Artifacts) -> Self {
        Self {
            artifacts,
            entries: Arc::default(),
        }
    }

    /// Returns a model's item table, or `None` if its package has none. Concurrent calls share
    /// one reading, which continues if the callers are cancelled.
    pub async fn get(&self, model: &ServedModel) -> Result<Option<Arc<Items>>> {
        if !model.has_item_table {
            return Ok(None);
        }
        let cell = self.entries().cell(&model.package);
        if let Some(items) = cell.get() {
            return Ok(Some(Arc::clone(items)));
        }
        let (tables, package) = (self.clone(), model.package.clone());
        let level_sizes = model.level_sizes();
        let loading = tokio::spawn(async move {
            let load = || tables.load(package, level_sizes);
            let items = Arc::clone(cell.get_or_try_init(load).await?);
            tables.entries().evict(BYTES_MAX);
            Ok(items)
        });
        loading.await.map_err(Error::internal)?.map(Some)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn load(&self, package: String, level_sizes: Vec<usize>) -> Result<Arc<Items>> {
        let bytes = read_verified(&self.artifacts, &package).await?;
        let parsed = tokio::task::spawn_blocking(move || Items::parse(&bytes, &level_sizes)).await;
        parsed
            .map_err(Error::internal)?
            .map(Arc::new)
            .map_err(|reason| Error::internal(format!("package {package}: {reason}")))
    }
}

/// Reads a package's item table, and verifies it by the manifest and the package's name.
async fn read_verified(artifacts: &Artifacts, package: &str) -> Result<Bytes> {
    let corrupt = |reason: &str| Error::internal(format!("package {package}: {reason}"));
    let name: PackageName = package.parse().map_err(Error::internal)?;
    let read = async |file: &str| {
        let found = artifacts.get(&name.object(file)).await?;
        found.ok_or_else(|| corrupt(&format!("{file} is missing")))
    };
    let manifest = read(MANIFEST_FILE).await?;
    if !name.has_manifest(&manifest) {
        return Err(corrupt("the name has the digest of another manifest"));
    }
    let manifest = Manifest::parse(&manifest).map_err(|reason| corrupt(&reason))?;
    let Some(file) = manifest.file(ITEMS_FILE) else {
        return Err(corrupt("the manifest names no item table"));
    };
    let bytes = read(ITEMS_FILE).await?;
    file.verify(&bytes).map_err(|reason| corrupt(&reason))?;
    Ok(bytes)
}

impl Entries {
    /// Returns a package's entry, which is created empty if it is missing.
    fn cell(&mut self, package: &str) -> Cell {
        self.requests += 1;
        if let Some((last_request, cell)) = self.by_package.get_mut(package) {
            *last_request = self.requests;
            return Arc::clone(cell);
        }
        let cell = Cell::default();
        let entry = (self.requests, Arc::clone(&cell));
        self.by_package.insert(package.to_owned(), entry);
        cell
    }

    /// Removes the least recently used tables until the rest fits, but never the last one.
    fn evict(&mut self, bytes_max: usize) {
        let latest = self.requests;
        let loaded = |cell: &Cell| cell.get().map_or(0, |items| items.bytes());
        let mut bytes: usize = self.by_package.values().map(|(_, cell)| loaded(cell)).sum();
        while bytes > bytes_max {
            let oldest = self
                .by_package
                .iter()
                .filter(|(_, (last_request, cell))| *last_request < latest && cell.get().is_some())
                .min_by_key(|(_, (last_request, _))| *last_request);
            let Some((package, (_, cell))) = oldest else {
                return;
            };
            bytes -= loaded(cell);
            let package = package.clone();
            self.by_package.remove(&package);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_codes_have_their_own_orders() {
        let ndjson = br#"{"item_id": "late", "code": "2-1"}

{"item_id": "early", "code": "0-1"}
"#;
        let items = Items::parse(ndjson, &[3, 2]).unwrap();
        assert_eq!(items.by_line, [1, 0]);
        assert_eq!(items.table.item_at(0), Some("early"));
        let error = Items::parse(ndjson, &[2, 2]).unwrap_err();
        assert!(error.starts_with("items.ndjson line 1"), "{error}");
    }

    #[test]
    fn least_recently_used_tables_are_removed() {
        let mut entries = Entries::default();
        let items = Arc::new(Items::parse(br#"{"item_id": "a", "code": "0"}"#, &[1]).unwrap());
        for package in ["a", "b", "c", "a"] {
            let _ = entries.cell(package).set(Arc::clone(&items));
        }
        let names = |entries: &Entries| {
            let mut names: Vec<_> = entries.by_package.keys().cloned().collect();
            names.sort();
            names.concat()
        };
        entries.evict(items.bytes() * 2);
        assert_eq!(names(&entries), "ac");
        entries.evict(0);
        assert_eq!(names(&entries), "a");
    }
}
