//! The Merkle tree of the log (RFC 6962) and its files (C2SP tlog-tiles): tiles of hashes, and
//! bundles of entries.

use std::cell::RefCell;
use std::collections::HashMap;

use tlog_tiles::{
    Error, Hash, HashReader, RecordProof, Tile, TileHashReader, TileReader, check_record,
    prove_record, record_hash, split_stored_hash_index, stored_hash_index,
    stored_hashes_for_record_hash, tree_hash,
};

/// A tile's height.
const HEIGHT: u8 = 8;

/// Hashes in a full tile, and entries in a full bundle.
pub const TILE_WIDTH: u64 = 1 << HEIGHT;

/// The current checkpoint's file.
pub const CHECKPOINT: &str = "checkpoint";

/// A log entry: a signed statement's SHA-256.
pub type Entry = [u8; 32];

/// A log file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The path below the log's address, such as `tile/0/000.p/3`.
    pub path: String,
    /// The content.
    pub bytes: Vec<u8>,
}

/// Returns a tile's path: the library's own has the height in addition.
fn tile_path(tile: &Tile) -> String {
    let path = tile.path();
    let prefix = format!("tile/{HEIGHT}/");
    format!("tile/{}", path.strip_prefix(&prefix).unwrap_or(&path))
}

/// Returns the path to the bundle with the entries from `number * 256`; `width` is their number.
pub fn bundle_path(number: u64, width: u32) -> String {
    let tile = tile_path(&Tile::new(HEIGHT, 0, number, width, false));
    format!(
        "tile/entries/{}",
        tile.strip_prefix("tile/0/").unwrap_or(&tile)
    )
}

/// Returns the bundle paths for a tree with this many entries, in order.
pub fn bundle_paths(size: u64) -> impl Iterator<Item = String> {
    (0..size.div_ceil(TILE_WIDTH)).map(move |number| {
        let width = (size - number * TILE_WIDTH).min(TILE_WIDTH);
        bundle_path(number, width as u32)
    })
}

/// Reads a bundle's entries: each has its length in two bytes before it.
///
/// # Errors
/// If an entry does not have 32 bytes.
pub fn read_bundle(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let (bundle, rest) = bytes.as_chunks::<34>();
    if !rest.is_empty() {
        return Err("a bundle of entries is truncated".into());
    }
    bundle
        .iter()
        .map(|[high, low, entry @ ..]| {
            if [*high, *low] == [0, 32] {
                Ok(*entry)
            } else {
                Err("an entry does not have 32 bytes".into())
            }
        })
        .collect()
}

/// A growing tree. It keeps only the unfinished tiles' hashes at its right edge, and the
/// entries that are not published yet.
#[derive(Default)]
pub struct GrowingTree {
    size: u64,
    /// By storage index.
    hashes: HashMap<u64, Hash>,
    /// The entries from `first_kept`, a bundle's start.
    entries: Vec<Entry>,
    first_kept: u64,
}

impl HashReader for GrowingTree {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<Hash>, Error> {
        indexes
            .iter()
            .map(|index| {
                self.hashes
                    .get(index)
                    .copied()
                    .ok_or(Error::IndexesNotInTree)
            })
            .collect()
    }
}

impl GrowingTree {
    /// Returns the entry count.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Never, unless the tree is inconsistent.
    pub fn push(&mut self, entry: &Entry) -> Result<(), Error> {
        let hashes = stored_hashes_for_record_hash(self.size, record_hash(entry), self)?;
        let first = stored_hash_index(0, self.size);
        self.hashes.extend((first..).zip(hashes));
        self.entries.push(*entry);
        self.size += 1;
        Ok(())
    }

    /// Returns the root.
    ///
    /// # Errors
    /// Never, unless the tree is inconsistent.
    pub fn root(&self) -> Result<Hash, Error> {
        tree_hash(self.size, self)
    }

    /// Returns the files that a tree has in addition to those for its first `published` entries.
    /// They must not be forgotten.
    ///
    /// # Errors
    /// Never, unless the tree is inconsistent.
    pub fn files_since(&self, published: u64) -> Result<Vec<File>, Error> {
        let mut files = Vec::new();
        for tile in Tile::new_tiles(HEIGHT, published, self.size) {
            files.push(File {
                path: tile_path(&tile),
                bytes: tile.read_data(self)?,
            });
        }
        let first = published / TILE_WIDTH;
        for (number, path) in (0..).zip(bundle_paths(self.size)).skip(first as usize) {
            if published == self.size {
                break;
            }
            let from = (number * TILE_WIDTH - self.first_kept) as usize;
            let entries = self.entries.iter().skip(from).take(TILE_WIDTH as usize);
            files.push(File {
                path,
                bytes: entries
                    .flat_map(|entry| [&[0, 32], entry.as_slice()].concat())
                    .collect(),
            });
        }
        Ok(files)
    }

    /// Forgets what only complete tiles' and bundles' files have.
    pub fn forget_complete(&mut self) {
        let size = self.size;
        self.hashes.retain(|index, _| {
            let (level, n) = split_stored_hash_index(*index);
            let level_of_tile = level / HEIGHT;
            let place = n >> (HEIGHT - level % HEIGHT);
            place == size >> (HEIGHT * level_of_tile) >> HEIGHT
        });
        let bundle = size / TILE_WIDTH * TILE_WIDTH;
        self.entries.drain(..(bundle - self.first_kept) as usize);
        self.first_kept = bundle;
    }
}

/// Tiles that were read, for proofs in a tree whose root is known.
#[derive(Default)]
pub struct KnownTiles {
    tiles: HashMap<String, Vec<u8>>,
    missing: RefCell<Vec<String>>,
}

/// The answer from a computation that needs tiles.
pub enum Found<T> {
    /// The result.
    Complete(T),
    /// The tile paths that must be read and [added](KnownTiles::add) first.
    Missing(Vec<String>),
}

impl TileReader for KnownTiles {
    fn height(&self) -> u8 {
        HEIGHT
    }

    fn read_tiles(&self, tiles: &[Tile]) -> Result<Vec<Vec<u8>>, Error> {
        let paths: Vec<String> = tiles.iter().map(tile_path).collect();
        let found = paths.iter().map(|path| self.tiles.get(path).cloned());
        if let Some(found) = found.collect() {
            return Ok(found);
        }
        let missing = paths
            .into_iter()
            .filter(|path| !self.tiles.contains_key(path));
        self.missing.borrow_mut().extend(missing);
        Err(Error::InvalidTile)
    }

    fn save_tiles(&self, _: &[Tile], _: &[Vec<u8>]) {}
}

impl KnownTiles {
    /// Adds a tile that was read.
    pub fn add(&mut self, path: String, bytes: Vec<u8>) {
        self.tiles.insert(path, bytes);
    }

    /// Returns the path from an entry to a tree's root.
    ///
    /// # Errors
    /// If the tiles do not belong to this root, or the entry is not at this index.
    pub fn prove(
        &self,
        size: u64,
        root: Hash,
        index: u64,
        entry: &Entry,
    ) -> Result<Found<RecordProof>, Error> {
        let reader = TileHashReader::new(size, root, self);
        match prove_record(size, index, &reader) {
            Ok(path) => {
                // The reader does not authenticate every tile.
                check_record(&path, size, root, index, record_hash(entry))?;
                Ok(Found::Complete(path))
            }
            Err(error) => {
                let missing = self.missing.take();
                if missing.is_empty() {
                    return Err(error);
                }
                Ok(Found::Missing(missing))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Proof;
    use tlog_tiles::{Checkpoint, EMPTY_HASH, node_hash};

    fn entry(at: u64) -> Entry {
        let mut entry = [0; 32];
        entry[..8].copy_from_slice(&at.to_le_bytes());
        entry
    }

    /// RFC 6962, section 2.1, as it is written there.
    fn root_by_definition(entries: &[Entry]) -> Hash {
        match entries {
            [] => EMPTY_HASH,
            [one] => record_hash(one),
            _ => {
                let k = entries.len().next_power_of_two() / 2;
                let (left, right) = entries.split_at(k);
                node_hash(root_by_definition(left), root_by_definition(right))
            }
        }
    }

    /// Grows a tree in steps as the log does, and returns it with all files.
    fn grown(steps: &[u64]) -> (GrowingTree, HashMap<String, Vec<u8>>) {
        let mut tree = GrowingTree::default();
        let mut files = HashMap::new();
        for step in steps {
            let published = tree.size();
            for at in published..published + step {
                tree.push(&entry(at)).unwrap();
            }
            for file in tree.files_since(published).unwrap() {
                files.insert(file.path, file.bytes);
            }
            tree.forget_complete();
        }
        (tree, files)
    }

    #[test]
    fn roots_are_those_of_rfc_6962() {
        let entries: Vec<Entry> = (0..700).map(entry).collect();
        let mut tree = GrowingTree::default();
        assert_eq!(tree.root().unwrap(), EMPTY_HASH);
        for (at, entry) in entries.iter().enumerate() {
            tree.push(entry).unwrap();
            if at % 3 == 0 {
                tree.forget_complete();
            }
            assert_eq!(
                tree.root().unwrap(),
                root_by_definition(&entries[..=at]),
                "{at}"
            );
        }
    }

    #[test]
    fn files_are_those_of_tlog_tiles() {
        let (tree, files) = grown(&[3, 253, 1, 0, 255, 600]);
        assert_eq!(tree.size(), 1112);
        for path in [
            "tile/0/000.p/3",
            "tile/0/000",
            "tile/0/001.p/1",
            "tile/0/001",
            "tile/0/004.p/88",
            "tile/1/000.p/1",
            "tile/1/000.p/4",
            "tile/entries/000.p/3",
            "tile/entries/004.p/88",
        ] {
            assert!(files.contains_key(path), "{path}");
        }
        assert_eq!(files["tile/0/004.p/88"].len(), 88 * 32);
        assert_eq!(
            files["tile/0/000.p/3"],
            (0..3)
                .flat_map(|at| record_hash(&entry(at)).0)
                .collect::<Vec<_>>()
        );
        let read: Vec<Entry> = bundle_paths(1112)
            .flat_map(|path| read_bundle(&files[&path]).unwrap())
            .collect();
        assert_eq!(read, (0..1112).map(entry).collect::<Vec<_>>());
        assert_eq!(bundle_path(1_234_067, 256), "tile/entries/x001/x234/067");
        read_bundle(&files["tile/entries/000"][1..]).unwrap_err();
        // The steps in which the tree grew do not matter.
        let (_, at_once) = grown(&[1112]);
        assert!(
            at_once
                .iter()
                .all(|(path, bytes)| files.get(path) == Some(bytes))
        );
    }

    #[test]
    fn every_entry_has_a_proof_from_tiles() {
        let (tree, files) = grown(&[1, 299, 400]);
        let root = tree.root().unwrap();
        let checkpoint = Checkpoint::new("o", tree.size(), root, "").unwrap();
        for index in 0..tree.size() {
            let mut tiles = KnownTiles::default();
            let path = loop {
                match tiles
                    .prove(tree.size(), root, index, &entry(index))
                    .unwrap()
                {
                    Found::Complete(path) => break path,
                    Found::Missing(paths) => {
                        for path in paths {
                            let bytes = files[&path].clone();
                            tiles.add(path, bytes);
                        }
                    }
                }
            };
            let proof = Proof {
                index,
                path,
                checkpoint: String::new(),
            };
            proof.check(&entry(index), &checkpoint).unwrap();
            assert!(proof.check(&entry(index + 1), &checkpoint).is_err());
        }
    }

    #[test]
    fn changed_tile_gives_no_proof() {
        let (tree, mut files) = grown(&[300]);
        let root = tree.root().unwrap();
        files.get_mut("tile/0/000").unwrap()[40] ^= 1;
        let mut tiles = KnownTiles::default();
        for (path, bytes) in files {
            tiles.add(path, bytes);
        }
        assert!(tiles.prove(300, root, 0, &entry(0)).is_err());
    }
}
