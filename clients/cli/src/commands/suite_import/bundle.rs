//! The files of a bundle, which somebody else may have made: no path leads out of it, and no link is followed.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use zip::ZipArchive;
use zip::result::ZipError;

use crate::failure::{Exit, Failure, Result};

/// The largest YAML file, in bytes.
const YAML_BYTES_MAX: u64 = 1024 * 1024;

/// The largest table, in bytes: what a check on the platform reads.
const TABLE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The kind of a file, which limits its size.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Yaml,
    Table,
}

impl Kind {
    fn bytes_max(self) -> u64 {
        match self {
            Self::Yaml => YAML_BYTES_MAX,
            Self::Table => TABLE_BYTES_MAX,
        }
    }
}

/// A bundle that is open.
pub struct Bundle {
    path: PathBuf,
    /// The archive; `None` for a folder.
    archive: Option<ZipArchive<File>>,
}

impl Bundle {
    /// Opens a folder, or a ZIP file if the platform's bundles can be one.
    pub fn open(path: &Path, can_be_zip: bool) -> Result<Self> {
        // With a slash at its end, a link would be followed.
        let path: PathBuf = path.components().collect();
        let shown = path.display();
        let metadata = path
            .symlink_metadata()
            .map_err(|error| Failure::io(&shown.to_string(), &error))?;
        if metadata.is_symlink() {
            let message = format!("{shown} is a symbolic link, which is not followed");
            return Err(Failure::new(Exit::InvalidInput, message)
                .with_advice("Name the folder or file itself."));
        }
        let archive = if metadata.is_dir() {
            None
        } else if metadata.is_file() && can_be_zip {
            let file =
                File::open(&path).map_err(|error| Failure::io(&shown.to_string(), &error))?;
            let archive = ZipArchive::new(file).map_err(|error| {
                Failure::new(
                    Exit::InvalidInput,
                    format!("{shown} is not a ZIP file: {error}"),
                )
            })?;
            Some(archive)
        } else {
            let or_zip = if can_be_zip { " or a ZIP file" } else { "" };
            let message = format!("{shown} is not a folder{or_zip}; unpack the bundle first");
            return Err(Failure::new(Exit::InvalidInput, message));
        };
        Ok(Self { path, archive })
    }

    /// Reads a file by its path within the bundle, with slashes.
    ///
    /// # Errors
    /// If the path leads out of the bundle or over a link, or if the file is larger than its kind.
    pub fn read(&mut self, name: &str, kind: Kind) -> Result<Vec<u8>> {
        let parts = parts(name)?;
        match &mut self.archive {
            Some(archive) => read_entry(archive, &parts.join("/"), kind),
            None => self.read_file(&parts, kind),
        }
    }

    fn read_file(&self, parts: &[&str], kind: Kind) -> Result<Vec<u8>> {
        let name = parts.join("/");
        let unreadable = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => missing(&name),
            _ => Failure::io(&name, &error),
        };
        let mut path = self.path.clone();
        let mut is_file = false;
        for part in parts {
            path.push(part);
            let metadata = path.symlink_metadata().map_err(unreadable)?;
            if metadata.is_symlink() {
                return Err(link(&name));
            }
            is_file = metadata.is_file();
        }
        // A pipe or a device could block, and a folder has no bytes.
        if !is_file {
            return Err(not_a_file(&name));
        }
        let file = fs::File::open(&path).map_err(unreadable)?;
        read_limited(&name, file, kind)
    }
}

fn read_entry(archive: &mut ZipArchive<File>, name: &str, kind: Kind) -> Result<Vec<u8>> {
    let entry = archive.by_name(name).map_err(|error| match error {
        ZipError::FileNotFound => missing(name),
        error => Failure::new(Exit::InvalidInput, format!("{name}: {error}")),
    })?;
    if entry.is_symlink() {
        return Err(link(name));
    }
    if !entry.is_file() {
        return Err(not_a_file(name));
    }
    read_limited(name, entry, kind)
}

/// Reads a file whose own size is not trusted.
fn read_limited(name: &str, file: impl Read, kind: Kind) -> Result<Vec<u8>> {
    let max = kind.bytes_max();
    let mut bytes = Vec::new();
    let read = file.take(max + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::io(name, &error))?;
    if bytes.len() as u64 > max {
        let message = format!("{name} has more than {} MiB", max / (1024 * 1024));
        return Err(Failure::new(Exit::InvalidInput, message));
    }
    Ok(bytes)
}

/// Returns the parts of a path within the bundle.
fn parts(name: &str) -> Result<Vec<&str>> {
    let parts: Vec<&str> = name.split('/').filter(|part| *part != ".").collect();
    // On Windows, `\` separates folders, and `:` follows a drive.
    let is_bad = |part: &&str| part.is_empty() || *part == ".." || part.contains(['\\', ':', '\0']);
    if parts.is_empty() || parts.iter().any(is_bad) {
        let message = format!(
            "{name:?} is no path of a file within the bundle: it must be relative, without .."
        );
        return Err(Failure::new(Exit::InvalidInput, message));
    }
    Ok(parts)
}

fn missing(name: &str) -> Box<Failure> {
    Failure::new(
        Exit::InvalidInput,
        format!("the bundle has no file {name:?}"),
    )
}

fn link(name: &str) -> Box<Failure> {
    let message = format!("{name:?} is a symbolic link or behind one, which is not followed");
    Failure::new(Exit::InvalidInput, message).with_advice("Put the file itself into the bundle.")
}

fn not_a_file(name: &str) -> Box<Failure> {
    Failure::new(Exit::InvalidInput, format!("{name:?} is not a file"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::tests::Folder;
    use super::*;

    const OUTSIDE: [&str; 10] = [
        "",
        ".",
        "..",
        "../secret.csv",
        "a/../../secret.csv",
        "/etc/hostname",
        "a//b",
        "a\\..\\b",
        "C:/a",
        "a\0b",
    ];

    #[test]
    fn paths_out_of_the_bundle_are_refused() {
        for name in OUTSIDE {
            let failure = parts(name).unwrap_err();
            assert_eq!(failure.exit, Exit::InvalidInput, "{name:?}");
        }
        assert_eq!(parts("./a/./b.csv").unwrap(), ["a", "b.csv"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_other_files_are_refused() {
        use std::os::unix::fs::symlink;
        let folder = Folder::new("links");
        folder.write("secret.csv", "a\n1\n");
        folder.write("bundle/data/real.csv", "a\n1\n");
        let root = folder.path("bundle");
        symlink("data/real.csv", root.join("inner.csv")).unwrap();
        symlink("../secret.csv", root.join("outer.csv")).unwrap();
        symlink("data", root.join("folder")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("nowhere", root.join("dangling.csv")).unwrap();
        let mut bundle = Bundle::open(&root, false).unwrap();
        assert_eq!(
            bundle.read("data/real.csv", Kind::Table).unwrap(),
            b"a\n1\n"
        );
        for name in [
            "inner.csv",
            "outer.csv",
            "folder/real.csv",
            "up/secret.csv",
            "dangling.csv",
        ] {
            let message = bundle.read(name, Kind::Table).unwrap_err().to_string();
            assert!(message.contains("symbolic link"), "{message}");
        }
        for (name, reason) in [
            ("data", "is not a file"),
            ("data/none.csv", "has no file"),
            ("data/real.csv/x", "has no file"),
        ] {
            let message = bundle.read(name, Kind::Table).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
        symlink(&root, folder.path("link")).unwrap();
        for name in ["link", "link/", "link/."] {
            let message = Bundle::open(&folder.path(name), true).err().unwrap();
            assert!(message.to_string().contains("symbolic link"), "{message}");
        }
    }

    #[test]
    fn file_above_its_limit_is_refused() {
        let folder = Folder::new("limit");
        for (n, is_read) in [(YAML_BYTES_MAX, true), (YAML_BYTES_MAX + 1, false)] {
            folder.write("c.yaml", &"#".repeat(usize::try_from(n).unwrap()));
            let mut bundle = Bundle::open(&folder.path(""), false).unwrap();
            let read = bundle.read("c.yaml", Kind::Yaml);
            assert_eq!(read.is_ok(), is_read, "{n}");
        }
    }

    #[test]
    fn archive_is_read_within_the_same_limits() {
        let folder = Folder::new("archive");
        let path = folder.path("bundle.zip");
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated);
        zip.start_file("data/a.csv", options).unwrap();
        zip.write_all(b"a\n1\n").unwrap();
        zip.start_file("bomb.yaml", options).unwrap();
        let zeros = vec![b'#'; 64 * 1024];
        for _ in 0..32 {
            zip.write_all(&zeros).unwrap();
        }
        zip.start_file("../out.csv", options).unwrap();
        zip.add_symlink("link.csv", "/etc/hostname", options)
            .unwrap();
        zip.finish().unwrap();
        let mut bundle = Bundle::open(&path, true).unwrap();
        assert_eq!(bundle.read("data/a.csv", Kind::Table).unwrap(), b"a\n1\n");
        for (name, kind, reason) in [
            ("bomb.yaml", Kind::Yaml, "more than 1 MiB"),
            ("../out.csv", Kind::Table, "within the bundle"),
            ("link.csv", Kind::Table, "symbolic link"),
            ("none.csv", Kind::Table, "has no file"),
        ] {
            let message = bundle.read(name, kind).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
        assert!(Bundle::open(&path, false).is_err());
        folder.write("text.zip", "no archive");
        assert!(Bundle::open(&folder.path("text.zip"), true).is_err());
    }
}
