//! A prediction job's sequences, read as a chunk stream: from the request, an upload, or a suite's
//! items.

use std::ops::ControlFlow;

use assay_core::model::item_sequence;
use assay_core::model::sequence::Sequence;
use assay_core::model::sequence_list::read_checked;
use assay_core::model::serving::SEQUENCES_MAX;
use assay_core::model::suite::NamedVersion;
use assay_core::model::suite_items::SuiteItem;
use assay_core::runtime::lines::Line;
use assay_core::runtime::upload_reader::{ContentReader, ReadUpload, read_upload};
use assay_core::store::work::{self, Claim, ClaimedPrediction};
use assay_core::store::{self, within_response_timeout};
use assay_core::{Error, Result};
use assay_eval::content::ReadEnd;
use assay_eval::suite::SequencePaths;
use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::context::AttemptContext;
use crate::input::{Input, InputPlace, fetch_input};

/// A chunk's size after which no further sequence is added, in JSON bytes. It bounds the job's
/// memory.
const CHUNK_BYTES: usize = 2 << 20;

/// The source for a job's sequences.
pub enum SequenceSource {
    /// A JSON array, or an upload with a sequence a line.
    Input(Input),
    /// A suite's items.
    Suite(NamedVersion, SequencePaths),
}

/// One sequence's JSON.
pub enum SourceElement {
    /// A sequence as callers write it.
    Sequence(String),
    /// A suite's item.
    Item(SuiteItem),
}

/// Sequences that one engine call predicts.
#[derive(Default)]
pub struct Chunk {
    /// The sequences, in input order.
    pub elements: Vec<SourceElement>,
    bytes: usize,
}

impl Chunk {
    fn push(&mut self, element: SourceElement) {
        self.bytes += match &element {
            SourceElement::Sequence(json) => json.len(),
            SourceElement::Item(item) => item.input.get().len(),
        };
        self.elements.push(element);
    }

    fn is_full(&self) -> bool {
        self.elements.len() >= SEQUENCES_MAX || self.bytes >= CHUNK_BYTES
    }
}

impl SourceElement {
    /// Parses the sequence.
    ///
    /// # Errors
    /// If it is not valid, although it was checked when it was submitted or published.
    pub fn read(&self, paths: Option<&SequencePaths>) -> Result<Sequence<'_>> {
        let changed =
            |reason: &str| Error::internal(format!("a sequence is no longer valid: {reason}"));
        match (self, paths) {
            (Self::Sequence(json), _) => read_checked(json, "sequence").map_err(|errors| {
                // Without the message, which may quote the history.
                changed(errors.first().map_or("unknown", |error| error.reason))
            }),
            (Self::Item(SuiteItem { item_id, input, .. }), Some(paths)) => {
                item_sequence::from_item(item_id, input.get(), paths)
                    .map_err(|_| changed("of an item of a suite"))
            }
            (Self::Item(_), None) => Err(changed("of an item without paths")),
        }
    }
}

impl SequenceSource {
    /// Finds a job's sequences. `None` if they are missing.
    pub async fn open(
        context: &AttemptContext,
        claim: &Claim,
        prediction: &ClaimedPrediction,
    ) -> Result<Option<Self>> {
        let has_input =
            claim.body.is_some() || claim.input_key.is_some() || claim.upload_id.is_some();
        match &prediction.suite {
            Some(suite) if !has_input => {
                let db = context.db.get();
                let paths = within_response_timeout(work::sequence_paths(&db, suite)).await?;
                Ok(Some(Self::Suite(suite.clone(), paths)))
            }
            _ => {
                let fetched = fetch_input(context, &claim.org_id, InputPlace::of(claim)).await?;
                Ok(fetched.map(Self::Input))
            }
        }
    }

    /// Returns `true` if an id can occur more than once: only an upload's lines were checked one
    /// by one.
    pub const fn can_repeat_ids(&self) -> bool {
        matches!(self, Self::Input(Input::Upload { .. }))
    }

    /// Returns the sequence's places in an item, if the source is a suite.
    pub fn paths(&self) -> Option<&SequencePaths> {
        match self {
            Self::Suite(_, paths) => Some(paths),
            Self::Input(_) => None,
        }
    }

    /// Sends all sequences in chunks, until the receiver is dropped.
    ///
    /// # Errors
    /// If they cannot be read, or are no longer what was checked.
    pub async fn send(&self, context: &AttemptContext, chunks: mpsc::Sender<Chunk>) -> Result<()> {
        match self {
            Self::Input(Input::Inline(json)) => send_array(json, &chunks).await,
            Self::Input(Input::Upload { format, parts }) => {
                let read = move |content: ContentReader<'_>| send_lines(content, &chunks);
                match read_upload(&context.artifacts, parts, *format, false, read).await? {
                    Some(ReadUpload { value, .. }) => value,
                    None => Err(Error::internal("an object of an upload is missing")),
                }
            }
            Self::Suite(suite, _) => send_items(context, suite, &chunks).await,
        }
    }
}

async fn send_array(json: &Bytes, chunks: &mpsc::Sender<Chunk>) -> Result<()> {
    // The elements were checked, so there are few for the array's size.
    let elements: Vec<&RawValue> = serde_json::from_slice(json).map_err(Error::internal)?;
    let mut chunk = Chunk::default();
    for element in elements {
        chunk.push(SourceElement::Sequence(element.get().to_owned()));
        if chunk.is_full() && chunks.send(std::mem::take(&mut chunk)).await.is_err() {
            return Ok(());
        }
    }
    send_last(chunk, chunks).await
}

/// Sends an upload's lines, on a thread that may block.
fn send_lines(content: ContentReader<'_>, chunks: &mpsc::Sender<Chunk>) -> Result<()> {
    let changed = || Error::internal("an upload changed after it was completed");
    let mut chunk = Chunk::default();
    let ended = content.read_lines(|_, line| {
        let Line::Text(json) = line else {
            return ControlFlow::Break(Err(changed()));
        };
        chunk.push(SourceElement::Sequence(json.to_owned()));
        if chunk.is_full() && chunks.blocking_send(std::mem::take(&mut chunk)).is_err() {
            return ControlFlow::Break(Ok(()));
        }
        ControlFlow::Continue(())
    });
    match ended {
        ReadEnd::Complete => {
            if !chunk.elements.is_empty() {
                // Without a receiver, the job does not need the sequences any more.
                let _ = chunks.blocking_send(chunk);
            }
            Ok(())
        }
        ReadEnd::Stopped(stopped) => stopped,
        ReadEnd::Invalid(_) => Err(changed()),
    }
}

async fn send_items(
    context: &AttemptContext,
    suite: &NamedVersion,
    chunks: &mpsc::Sender<Chunk>,
) -> Result<()> {
    let NamedVersion { suite_id, version } = suite;
    let limit = u32::try_from(SEQUENCES_MAX).map_err(Error::internal)?;
    let db = context.db.get();
    let content_id = store::suite::content_id(&db, suite_id, version);
    let content_id = within_response_timeout(content_id).await?;
    let mut from = 0;
    loop {
        let db = context.db.get();
        let page = store::suite::items(&db, content_id, from, limit);
        let items = within_response_timeout(page).await?;
        if items.is_empty() {
            // The items of a removed version end at any place.
            let db = context.db.get();
            let removed = store::suite::ensure_not_removed(&db, suite_id, version);
            return within_response_timeout(removed).await;
        }
        from += i32::try_from(items.len()).map_err(Error::internal)?;
        let mut chunk = Chunk::default();
        for item in items {
            chunk.push(SourceElement::Item(item));
            if chunk.is_full() && chunks.send(std::mem::take(&mut chunk)).await.is_err() {
                return Ok(());
            }
        }
        send_last(chunk, chunks).await?;
    }
}

async fn send_last(chunk: Chunk, chunks: &mpsc::Sender<Chunk>) -> Result<()> {
    if !chunk.elements.is_empty() {
        // Without a receiver, the job does not need the sequences any more.
        let _ = chunks.send(chunk).await;
    }
    Ok(())
}
