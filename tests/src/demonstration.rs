//! The demonstration: both suites, and a model for the second.

use std::path::Path;

use crate::servers::Trouble;
use crate::stack::Stack;
use crate::{demo_suite, playlist_suite};

/// The model's id, whose package is in `tests/models`.
pub const MODEL_ID: &str = "playlist-1";

/// Publishes the suite of choices.
///
/// # Errors
/// If its folder cannot be written, or the command fails.
pub async fn publish_lunch(stack: &Stack) -> Result<(), Trouble> {
    publish(stack, "lunch", demo_suite::write).await
}

/// Publishes the suite of playlists, and then the model that predicts it.
///
/// # Errors
/// If its folder cannot be written, or a command fails.
pub async fn publish_playlist(stack: &Stack) -> Result<(), Trouble> {
    publish(stack, "playlist", playlist_suite::write).await?;
    let package = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("models")
        .join(MODEL_ID);
    let package = package.to_string_lossy();
    stack.operate(&["model", "publish", &package]).await?;
    Ok(())
}

async fn publish(
    stack: &Stack,
    name: &str,
    write: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<(), Trouble> {
    let folder = stack.ground.servers.folder().join(name);
    write(&folder).map_err(Trouble::because(format!(
        "cannot write the demonstration suite {name}"
    )))?;
    let folder = folder.to_string_lossy();
    stack.operate(&["suite", "publish", &folder]).await?;
    Ok(())
}
