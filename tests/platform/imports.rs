//! The product crates' imports: they follow the table in ARCHITECTURE.md, and neither files nor the
//! folders in `model` and `store` have an import cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;

use crate::harness::list_files;

/// The crates of the product: the import name and the source folder.
const CRATES: [(&str, &str); 18] = [
    ("assay_eval", "core/eval/src"),
    ("assay_receipts", "core/receipts/src"),
    ("assay_adversary", "core/adversary/src"),
    ("assay_tables", "core/tables/src"),
    ("assay_exports", "core/exports/src"),
    ("assay_audit", "core/audit/src"),
    ("assay_core", "core/src"),
    ("assay_publishing", "core/publishing/src"),
    ("assay_proto", "proto/src"),
    ("assay_contract", "proto/contract/src"),
    ("assay_inference", "proto/inference/src"),
    ("assay_api", "api/src"),
    ("assay_worker", "worker/src"),
    ("assay_engine", "worker/engine/src"),
    ("assay_engine_client", "worker/engine-client/src"),
    ("assay_engine_server", "worker/engine-server/src"),
    ("assay", "clients/cli/src"),
    ("assay_scorer", "clients/scorer/src"),
];

/// The folders whose modules are grouped in their own folders.
const GROUPED: [&str; 2] = ["core/src/model/", "core/src/store/"];

/// The most files in a folder of a group, besides its `mod.rs`.
const FILES_MAX: usize = 16;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

type Segments = Vec<String>;

/// A module in its own file.
#[derive(Default)]
struct Module {
    /// The file's path, relative to the repository's root.
    file: String,
    /// Names that this module imports or re-exports, with their paths.
    names: BTreeMap<String, Segments>,
    /// The modules all of whose names this module re-exports.
    globs: Vec<Segments>,
    /// Paths in the file, except those in its tests.
    paths: Vec<Segments>,
}

/// Collects the paths in a file.
struct Paths<'m> {
    module: &'m mut Module,
    /// The inline modules' depth.
    depth: usize,
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            attribute.path().is_ident("cfg") && list.tokens.to_string().contains("test")
        }
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::NameValue(_) => false,
    })
}

/// Adds a `use` declaration's paths: each with the name that it defines.
fn expand(tree: &syn::UseTree, prefix: &[String], found: &mut Vec<(String, Segments)>) {
    let with = |name: &syn::Ident| {
        let mut path = prefix.to_vec();
        if name != "self" {
            path.push(name.to_string());
        }
        path
    };
    match tree {
        syn::UseTree::Path(path) => expand(&path.tree, &with(&path.ident), found),
        syn::UseTree::Name(name) => {
            let path = with(&name.ident);
            found.push((path.last().cloned().unwrap_or_default(), path));
        }
        syn::UseTree::Rename(rename) => {
            found.push((rename.rename.to_string(), with(&rename.ident)));
        }
        syn::UseTree::Glob(_) => found.push((String::from("*"), prefix.to_vec())),
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                expand(tree, prefix, found);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            self.depth += 1;
            syn::visit::visit_item_mod(self, item);
            self.depth -= 1;
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if is_test(&item.attrs) {
            return;
        }
        let mut found = Vec::new();
        expand(&item.tree, &[], &mut found);
        for (name, path) in found {
            self.module.paths.push(path.clone());
            if self.depth == 0 && name == "*" {
                self.module.globs.push(path);
            } else if self.depth == 0 {
                self.module.names.insert(name, path);
            }
        }
    }

    /// Skips the path in `pub(in crate::store)`, which is no import.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let path_segments = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        let segments: Segments = path_segments.collect();
        if segments.len() > 1 {
            self.module.paths.push(segments);
        }
        syn::visit::visit_path(self, path);
    }
}

/// Every module in the crates, by its absolute path: `["assay_core", "store", "job"]`.
struct Modules(BTreeMap<Segments, Module>);

impl Modules {
    fn read() -> Self {
        let mut modules = BTreeMap::new();
        for (name, folder) in CRATES {
            for path in list_files(&root().join(folder)) {
                if path.extension().is_none_or(|extension| extension != "rs") {
                    continue;
                }
                let inside = path.strip_prefix(root().join(folder)).unwrap();
                let mut segments: Segments = inside
                    .with_extension("")
                    .iter()
                    .map(|part| part.to_str().unwrap().to_owned())
                    .collect();
                // `main.rs` is its own crate; tests in their own files do not belong to the
                // product.
                if ["main", "tests"].contains(&segments.last().unwrap().as_str()) {
                    continue;
                }
                segments.pop_if(|last| ["lib", "mod"].contains(&last.as_str()));
                segments.insert(0, name.to_owned());
                let text = std::fs::read_to_string(&path).unwrap();
                let mut module = Module {
                    file: format!("{folder}/{}", inside.display()),
                    ..Module::default()
                };
                let syntax = syn::parse_file(&text).unwrap();
                Paths {
                    module: &mut module,
                    depth: 0,
                }
                .visit_file(&syntax);
                modules.insert(segments, module);
            }
        }
        let mut modules = Self(modules);
        modules.expand_globs();
        modules
    }

    /// Adds the names that modules re-export from all modules in a folder, as in `pub use jobs::*`.
    fn expand_globs(&mut self) {
        let mut names = Vec::new();
        for (from, module) in &self.0 {
            for glob in &module.globs {
                let Some(folder) = self.absolute(from, glob) else {
                    continue;
                };
                let is_inside =
                    |path: &&Segments| path.len() == folder.len() + 1 && path.starts_with(&folder);
                for path in self.0.keys().filter(is_inside) {
                    names.push((from.clone(), path.clone()));
                }
            }
        }
        for (from, path) in names {
            if let (Some(module), Some(name)) = (self.0.get_mut(&from), path.last().cloned()) {
                module.names.entry(name).or_insert(path);
            }
        }
    }

    /// Resolves a path in a module to an absolute path. Returns `None` if it leads outside the
    /// product's crates.
    fn absolute(&self, from: &[String], path: &[String]) -> Option<Segments> {
        let mut base: Segments = from.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.truncate(1);
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            first if CRATES.iter().any(|(name, _)| *name == first) => return Some(path.to_vec()),
            first => {
                let mut child = base.clone();
                child.push(first.to_owned());
                if !self.0.contains_key(&child) {
                    // A name that was imported, such as `job::JobRow` after `use
                    // crate::model::job`.
                    let imported = self.0.get(from)?.names.get(first)?;
                    if imported.first()? == first {
                        return None;
                    }
                    let mut target = self.absolute(from, imported)?;
                    target.extend_from_slice(&path[1..]);
                    return Some(target);
                }
            }
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// Returns the module that defines the item at an absolute path. Follows re-exports.
    fn definition(&self, path: &[String], depth: usize) -> Option<Segments> {
        let known = (1..=path.len())
            .rev()
            .find(|length| self.0.contains_key(&path[..*length]))?;
        let module = &path[..known];
        if let Some(name) = path.get(known)
            && depth < 8
            && let Some(target) = self.0[module].names.get(name)
            && let Some(mut target) = self.absolute(module, target)
            && target[..] != path[..=known]
        {
            // A path's rest through a module that is re-exported: `store::job::find`.
            target.extend_from_slice(&path[known + 1..]);
            return self.definition(&target, depth + 1);
        }
        Some(module.to_vec())
    }

    /// Returns the files that each file imports from.
    fn imports(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut imports = BTreeMap::new();
        for (segments, module) in &self.0 {
            let targets: BTreeSet<&str> = module
                .paths
                .iter()
                .filter_map(|path| self.absolute(segments, path))
                .filter_map(|path| self.definition(&path, 0))
                .map(|definition| self.0[&definition].file.as_str())
                .filter(|file| *file != module.file)
                .collect();
            imports.insert(module.file.as_str(), targets);
        }
        imports
    }
}

/// Returns the shortest import cycle through this file, if any.
fn cycle<'f>(
    imports: &BTreeMap<&'f str, BTreeSet<&'f str>>,
    start: &'f str,
) -> Option<Vec<&'f str>> {
    let mut seen = BTreeSet::new();
    let mut paths = vec![vec![start]];
    while let Some(path) = paths.pop() {
        for &next in &imports[path.last()?] {
            if next == start {
                return Some(path);
            }
            if seen.insert(next) {
                let mut longer = path.clone();
                longer.push(next);
                paths.insert(0, longer);
            }
        }
    }
    None
}

/// Returns every import cycle, each once: `a -> b`.
fn cycles(imports: &BTreeMap<&str, BTreeSet<&str>>) -> BTreeSet<String> {
    imports
        .keys()
        .filter_map(|file| cycle(imports, file))
        .map(|mut cycle| {
            let first = cycle
                .iter()
                .enumerate()
                .min_by_key(|(_, file)| **file)
                .unwrap()
                .0;
            cycle.rotate_left(first);
            cycle.join(" -> ")
        })
        .collect()
}

fn assert_no_cycle(imports: &BTreeMap<&str, BTreeSet<&str>>) {
    let cycles: Vec<String> = cycles(imports).into_iter().collect();
    assert!(
        cycles.is_empty(),
        "{} cycles:\n{}",
        cycles.len(),
        cycles.join("\n")
    );
}

#[test]
fn files_have_no_import_cycle() {
    let modules = Modules::read();
    let imports = modules.imports();
    assert!(
        imports.values().map(BTreeSet::len).sum::<usize>() > 500,
        "imports are not found"
    );
    assert_no_cycle(&imports);
}

/// Returns a file's folder in a group. `None` for files that are directly in the group.
fn folder<'f>(group: &str, file: &'f str) -> Option<&'f str> {
    let (folder, _) = file.strip_prefix(group)?.split_once('/')?;
    Some(&file[..group.len() + folder.len()])
}

/// Returns the folders in a group that each folder imports from.
fn folder_imports<'f>(
    group: &str,
    imports: &BTreeMap<&'f str, BTreeSet<&'f str>>,
) -> BTreeMap<&'f str, BTreeSet<&'f str>> {
    let mut folders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, targets) in imports {
        if let Some(source) = folder(group, file) {
            let targets = targets.iter().filter_map(|target| folder(group, target));
            folders
                .entry(source)
                .or_default()
                .extend(targets.filter(|target| *target != source));
        }
    }
    folders
}

#[test]
fn folders_have_no_import_cycle() {
    let modules = Modules::read();
    let imports = modules.imports();
    for group in GROUPED {
        let folders = folder_imports(group, &imports);
        assert!(folders.len() > 5, "{group}: folders are not found");
        assert_no_cycle(&folders);
    }
}

#[test]
fn folder_cycle_is_found_where_files_have_none() {
    let imports = [
        ("store/mod.rs", vec!["store/jobs/job.rs"]),
        (
            "store/jobs/job.rs",
            vec!["store/usage/plan.rs", "model/ids.rs"],
        ),
        ("store/jobs/queue.rs", vec!["store/jobs/job.rs"]),
        ("store/usage/plan.rs", vec![]),
        ("store/usage/usage.rs", vec!["store/jobs/leases.rs"]),
        ("store/jobs/leases.rs", vec![]),
        ("model/ids.rs", vec![]),
    ];
    let imports: BTreeMap<&str, BTreeSet<&str>> = imports
        .into_iter()
        .map(|(file, targets)| (file, targets.into_iter().collect()))
        .collect();
    assert_no_cycle(&imports);
    let found: Vec<String> = cycles(&folder_imports("store/", &imports))
        .into_iter()
        .collect();
    assert_eq!(found, ["store/jobs -> store/usage"]);
}

#[test]
fn folders_have_few_files() {
    let modules = Modules::read();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for module in modules
        .0
        .values()
        .filter(|module| !module.file.ends_with("/mod.rs"))
    {
        let file = module.file.as_str();
        if let Some(folder) = GROUPED.iter().find_map(|group| folder(group, file)) {
            *counts.entry(folder).or_default() += 1;
        } else if let Some(group) = GROUPED.iter().find(|group| file.starts_with(**group)) {
            panic!("{file} must be in a folder of {group}");
        }
    }
    for (folder, count) in counts {
        assert!(
            count <= FILES_MAX,
            "{folder} has {count} files, at most {FILES_MAX} are allowed"
        );
    }
}

/// Returns the import table's rows in ARCHITECTURE.md: a folder or file, and the folders and
/// files that it may import from.
fn allowed() -> Vec<(String, Vec<String>)> {
    let document = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, table) = document.split_once("| source | may import from |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let places = |cell: &str| {
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let sources: Vec<String> = places(cells[1]);
        let targets: Vec<String> = places(cells[2]);
        sources
            .into_iter()
            .map(move |source| (source, targets.clone()))
    })
    .collect()
}

fn is_in(file: &str, place: &str) -> bool {
    file == place || (place.ends_with('/') && file.starts_with(place))
}

#[test]
fn imports_follow_architecture_table() {
    let rows = allowed();
    assert!(rows.len() > 10, "the table is not found");
    let modules = Modules::read();
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for (file, targets) in modules.imports() {
        let row = rows
            .iter()
            .filter(|(source, _)| is_in(file, source))
            .max_by_key(|(source, _)| source.len());
        let Some((source, allowed)) = row else {
            wrong.push(format!("{file} is in no row of the table"));
            continue;
        };
        for target in targets.into_iter().filter(|target| !is_in(target, source)) {
            match allowed.iter().find(|place| is_in(target, place)) {
                Some(place) => _ = used.insert((source, place)),
                None => wrong.push(format!("{file} imports from {target}")),
            }
        }
    }
    for (source, allowed) in &rows {
        for place in allowed
            .iter()
            .filter(|place| !used.contains(&(source, *place)))
        {
            wrong.push(format!(
                "{source} imports nothing from {place}: remove it from the table"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn evaluation_depends_on_no_runtime() {
    let manifest = std::fs::read_to_string(root().join("core/eval/Cargo.toml")).unwrap();
    for name in ["tokio", "sqlx", "axum", "utoipa", "assay-core"] {
        assert!(
            !manifest
                .lines()
                .any(|line| line.starts_with(&format!("{name}."))),
            "{name}"
        );
    }
}
