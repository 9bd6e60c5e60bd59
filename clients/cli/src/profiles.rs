//! The file with the profiles: addresses and credentials, which the Python client reads as well.

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, value};

use crate::failure::{Exit, Failure, Result};

/// The name of the profile that is used unless another one is named.
pub const DEFAULT: &str = "default";

/// The profiles, as in the file.
pub struct Profiles {
    path: PathBuf,
    document: DocumentMut,
}

/// One profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// The installation's address.
    pub base_url: Option<String>,
    /// An API key or a session token.
    pub api_key: Option<String>,
}

/// Returns `$XDG_CONFIG_HOME`, `~/.config` or, on Windows, `%APPDATA%`, and the same for the cache.
fn user_folder(variable: &str, below_home: &str, on_windows: &str) -> PathBuf {
    let set = |name: &str| env::var_os(name).filter(|path| !path.is_empty());
    if let Some(path) = set(variable) {
        return path.into();
    }
    if cfg!(windows) {
        return set(on_windows).map_or_else(|| ".".into(), PathBuf::from);
    }
    set("HOME").map_or_else(|| ".".into(), |home| Path::new(&home).join(below_home))
}

/// Returns the cache folder: `$ASSAY_CACHE`, or `assay` in the user's cache folder.
pub fn cache_folder() -> PathBuf {
    match env::var_os("ASSAY_CACHE").filter(|path| !path.is_empty()) {
        Some(path) => path.into(),
        None => user_folder("XDG_CACHE_HOME", ".cache", "LOCALAPPDATA").join("assay"),
    }
}

impl Profiles {
    /// Reads the user's file. Fails if other users can read it.
    pub fn load() -> Result<Self> {
        let path = user_folder("XDG_CONFIG_HOME", ".config", "APPDATA").join("assay/config.toml");
        Self::load_from(path)
    }

    fn load_from(path: PathBuf) -> Result<Self> {
        let name = path.display().to_string();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::io(&name, &error)),
        };
        refuse_readable_by_others(&path)?;
        let document = text
            .parse()
            .map_err(|error| Failure::new(Exit::Usage, format!("{name} is not valid: {error}")))?;
        let profiles = Self { path, document };
        for profile in profiles.names() {
            profiles.check(&profile)?;
        }
        Ok(profiles)
    }

    /// Fails if a profile field is not a string.
    fn check(&self, profile: &str) -> Result<()> {
        let table = self.document.get(profile).and_then(Item::as_table_like);
        let wrong = table.and_then(|table| table.iter().find(|(_, item)| !item.is_str()));
        match wrong {
            Some((field, _)) => Err(Failure::new(
                Exit::Usage,
                format!(
                    "{}: {field} of the profile {profile:?} must be a string",
                    self.path.display()
                ),
            )),
            None => Ok(()),
        }
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the profile names, in file order.
    pub fn names(&self) -> Vec<String> {
        self.document
            .iter()
            .filter(|(_, item)| item.is_table_like())
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    /// Returns a profile.
    pub fn get(&self, name: &str) -> Option<Profile> {
        let table = self.document.get(name)?.as_table_like()?;
        let text = |key| table.get(key).and_then(Item::as_str).map(str::to_owned);
        Some(Profile {
            base_url: text("base_url"),
            api_key: text("api_key"),
        })
    }

    /// Changes a profile, or adds it. Keeps comments and other profiles.
    pub fn set(&mut self, name: &str, profile: &Profile) -> Result<()> {
        if name.is_empty() {
            return Err(Failure::new(
                Exit::Usage,
                "the name of the profile is empty",
            ));
        }
        let entry = self.document.entry(name);
        let table = entry.or_insert_with(|| Item::Table(Table::new()));
        let Some(table) = table.as_table_like_mut() else {
            let message = format!("{}: {name:?} is not a table", self.path.display());
            return Err(Failure::new(Exit::Usage, message));
        };
        for (key, text) in [
            ("base_url", &profile.base_url),
            ("api_key", &profile.api_key),
        ] {
            match text {
                Some(text) => {
                    table.insert(key, value(text));
                }
                None => {
                    table.remove(key);
                }
            }
        }
        Ok(())
    }

    /// Writes the file, which only its owner can read. It is replaced as a whole.
    pub fn save(&self) -> Result<()> {
        let name = self.path.display().to_string();
        // A symbolic link stays one.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        write_private(&path, self.document.to_string().as_bytes())
            .map_err(|error| Failure::io(&name, &error))
    }
}

#[cfg(unix)]
fn refuse_readable_by_others(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok(metadata) = fs::metadata(path) else {
        return Ok(());
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let name = path.display();
    Err(Failure::new(
        Exit::Credential,
        format!("{name} contains API keys and other users can read it (mode {mode:04o})"),
    )
    .with_advice(format!(
        "Run: chmod 600 {name}\nIf others may have read the keys, rotate them."
    )))
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "on Unix it can fail")]
fn refuse_readable_by_others(_: &Path) -> Result<()> {
    Ok(())
}

/// Writes a file that only its owner can read. It appears only when it is complete.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        builder.mode(0o700);
        options.mode(0o600);
    }
    builder.create(folder)?;
    let partial = folder.join(format!(".partial-{:016x}", rand::random::<u64>()));
    let written = options.open(&partial).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("assay-cli-{}-{name}", std::process::id()));
        folder.join("config.toml")
    }

    #[test]
    fn change_keeps_comments_and_other_profiles() {
        let path = file("change");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_private(
            &path,
            b"# mine\n[default]\napi_key = \"a\" # old\n[\"ci\"]\nbase_url='https://b'\n",
        )
        .unwrap();
        let mut profiles = Profiles::load_from(path.clone()).unwrap();
        assert_eq!(profiles.names(), ["default", "ci"]);
        let profile = Profile {
            base_url: Some("https://a".into()),
            api_key: Some("b".into()),
        };
        profiles.set(DEFAULT, &profile).unwrap();
        profiles.save().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("# mine\n[default]\napi_key = \"b\""),
            "{text}"
        );
        let profiles = Profiles::load_from(path.clone()).unwrap();
        assert_eq!(profiles.get(DEFAULT), Some(profile));
        assert_eq!(
            profiles.get("ci").unwrap().base_url.as_deref(),
            Some("https://b")
        );
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = file("mode");
        write_private(&path, b"[default]\n").unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let failure = Profiles::load_from(path.clone()).err().unwrap();
        assert_eq!(failure.exit, Exit::Credential);
        assert!(failure.to_string().contains("mode 0640"), "{failure}");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
