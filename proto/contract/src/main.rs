//! `cargo contract`: writes the files that are generated from the contract. If the contract has
//! errors, it prints all of them and writes nothing.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use assay_contract::{GeneratedFile, generate, read_documents, read_sources};

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match run(&root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(report) => {
            eprintln!("{report}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the generated files of a repository.
fn run(root: &Path) -> Result<(), String> {
    let sources = read_sources(root).map_err(|error| format!("proto/assay/v1: {error}"))?;
    let documents = read_documents(root).map_err(|error| format!("documents: {error}"))?;
    let files = generate(&sources, &documents).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })?;
    for file in files {
        write(root, &file).map_err(|error| format!("{}: {error}", file.path))?;
    }
    Ok(())
}

/// Writes a file unless it has this content already: its time would make cargo compile it again.
fn write(root: &Path, file: &GeneratedFile) -> io::Result<()> {
    let path = root.join(file.path);
    if std::fs::read_to_string(&path).is_ok_and(|content| content == file.content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&path, &file.content)?;
    println!("wrote {}", file.path);
    Ok(())
}
