//! A loaded package and its operations.

use std::collections::HashSet;

use crate::beam::{BeamBuffers, Query, best_items};
use crate::encode::{EncodeBuffers, encode};
use crate::error::{PackageError, Refusal};
use crate::exact::score_items;
use crate::excluded::Excluded;
use crate::generate::{Generator, Path};
use crate::history::{History, append_code};
use crate::items::ItemTable;
use crate::kernels::norm::normalize;
use crate::levels::level_logits;
use crate::network::Network;
use crate::random::Random;
use crate::request::{
    Continuation, Counts, EmbedOptions, Embedding, GenerateMode, GenerateOptions, Generation,
    Logits, Pooling, PredictOptions, RankedItem, Ranking, Sequence,
};
use crate::spec::ModelSpec;
use crate::top::{TopBuffers, top_items};
use crate::weights::Weights;

/// Catalog items that `predict` returns by default.
const TOP_K_DEFAULT: usize = 10;

/// Largest number of catalog items among which `predict` finds exactly the most probable ones. The
/// search visits all items at worst, if their probabilities hardly differ.
pub const EXACT_ITEMS_MAX: usize = 200_000;

/// A package's files, as far as the engine reads them.
#[derive(Debug, Clone, Copy)]
pub struct PackageFiles<'a> {
    /// `model.json`.
    pub model: &'a [u8],
    /// `weights.safetensors`.
    pub weights: &'a [u8],
    /// `items.ndjson`. `None` if no tokenizer is fitted.
    pub items: Option<&'a [u8]>,
}

/// Buffers that calls reuse. One thread needs one, for any models; a result does not depend on what
/// was computed with it before.
#[derive(Debug, Default)]
pub struct Scratch {
    history: History,
    longer: History,
    encode: EncodeBuffers,
    beam: BeamBuffers,
    top: TopBuffers,
}

/// A loaded package. Threads share it, each with its own [`Scratch`].
///
/// `should_stop` is called between computation steps that take milliseconds at most in small
/// models. Once it returns `true`, the operation ends with [`Refusal::Stopped`].
#[derive(Debug)]
pub struct Model {
    network: Network,
    items: Option<ItemTable>,
}

impl Model {
    /// Reads and checks a package.
    pub fn load(files: &PackageFiles<'_>) -> Result<Self, PackageError> {
        let spec = ModelSpec::parse(files.model)?;
        let weights = Weights::open(&spec, files.weights)?;
        let items = files
            .items
            .map(|ndjson| ItemTable::parse(ndjson, &spec.level_sizes))
            .transpose()?;
        Ok(Self {
            network: Network::read(spec, &weights)?,
            items,
        })
    }

    /// Returns the memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.network.bytes() + self.items.as_ref().map_or(0, ItemTable::bytes)
    }

    /// Returns the model's sizes and constants.
    pub fn spec(&self) -> &ModelSpec {
        &self.network.spec
    }

    /// Returns the catalog items, unless no tokenizer is fitted.
    pub fn items(&self) -> Option<&ItemTable> {
        self.items.as_ref()
    }

    /// Ranks a sequence's options, or all catalog items, by their probability of being next.
    ///
    /// Options have exact scores. Without options, the min(`top_k`, allowed items) most probable items
    /// are returned; in a catalog with several levels and more than [`EXACT_ITEMS_MAX`] items, as many
    /// that a beam search finds. An item has the same score in all cases.
    pub fn predict<'a>(
        &'a self,
        scratch: &mut Scratch,
        sequence: &Sequence<'a>,
        options: &PredictOptions,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Ranking<'a>, Refusal> {
        if let Some(given) = sequence.options {
            return self.rank_options(scratch, sequence, given, options, should_stop);
        }
        let items = self.items.as_ref().ok_or(Refusal::NoItemTable)?;
        let counts = self.read_history(scratch, sequence)?;
        let excluded = match options.exclude_seen {
            true => Excluded::seen(items, sequence.events),
            false => Excluded::default(),
        };
        let state = encode(
            &self.network,
            &mut scratch.encode,
            &scratch.history,
            Pooling::Last,
            should_stop,
        )?;
        let query = Query {
            network: &self.network,
            items,
            state,
            top_k: options.top_k.unwrap_or(TOP_K_DEFAULT),
            excluded: &excluded,
        };
        let Scratch { beam, top, .. } = scratch;
        let is_exact = self.network.levels.len() == 1 || items.len() <= EXACT_ITEMS_MAX;
        let found = if is_exact {
            top_items(query, beam, top, should_stop)?
        } else {
            best_items(query, beam)?;
            beam.items()
        };
        let ranked = found.iter().filter_map(|item| {
            Some(RankedItem {
                item_id: items.item_at(item.node)?,
                score: Some(item.score),
            })
        });
        Ok(Ranking {
            items: ranked.collect(),
            counts,
            is_exact,
        })
    }

    fn rank_options<'a>(
        &'a self,
        scratch: &mut Scratch,
        sequence: &Sequence<'a>,
        given: &[&'a str],
        options: &PredictOptions,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Ranking<'a>, Refusal> {
        let counts = self.read_history(scratch, sequence)?;
        let seen: HashSet<&str> = match options.exclude_seen {
            true => sequence.events.iter().map(|event| event.item_id).collect(),
            false => HashSet::new(),
        };
        let mut codes = Vec::new();
        let mut known = Vec::new();
        let mut unknown = Vec::new();
        for item_id in given.iter().filter(|item_id| !seen.contains(*item_id)) {
            match append_code(&self.network, self.items.as_ref(), item_id, &mut codes) {
                true => known.push(*item_id),
                false => unknown.push(*item_id),
            }
        }
        let codes = codes.chunks_exact(self.network.levels.len());
        let mut known: Vec<(&[u32], &str)> = codes.zip(known).collect();
        known.sort_by_key(|(code, _)| *code);
        let state = encode(
            &self.network,
            &mut scratch.encode,
            &scratch.history,
            Pooling::Last,
            should_stop,
        )?;
        let codes: Vec<&[u32]> = known.iter().map(|(code, _)| *code).collect();
        let scores = score_items(&self.network, &codes, state, &mut scratch.beam.levels)?;
        let scored = known
            .iter()
            .zip(scores)
            .map(|((_, item_id), score)| RankedItem {
                item_id,
                score: Some(score),
            });
        let mut items: Vec<RankedItem<'a>> = scored.collect();
        // The sort is stable: items with equal scores stay in code order.
        items.sort_by(|one, other| {
            let score = |item: &RankedItem<'_>| item.score.unwrap_or(f32::NEG_INFINITY);
            score(other).total_cmp(&score(one))
        });
        items.extend(unknown.into_iter().map(|item_id| RankedItem {
            item_id,
            score: None,
        }));
        items.truncate(options.top_k.unwrap_or(usize::MAX));
        Ok(Ranking {
            items,
            counts,
            is_exact: true,
        })
    }

    /// Continues a sequence with catalog items. `sequence_id` only selects the random numbers.
    ///
    /// Each step encodes the last events again, so a continuation equals what new requests with the
    /// longer history return. Generated events have no type.
    pub fn generate(
        &self,
        scratch: &mut Scratch,
        sequence: &Sequence<'_>,
        sequence_id: &str,
        options: &GenerateOptions,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Generation<'_>, Refusal> {
        let items = self.items.as_ref().ok_or(Refusal::NoItemTable)?;
        let counts = self.read_history(scratch, sequence)?;
        let mut generator = Generator {
            network: &self.network,
            items,
            history: &scratch.history,
            excluded: match options.exclude_seen {
                true => Excluded::seen(items, sequence.events),
                false => Excluded::default(),
            },
            is_distinct: options.exclude_seen,
            n_events: options.n_events,
            longer: &mut scratch.longer,
            encode: &mut scratch.encode,
            beam: &mut scratch.beam,
            should_stop,
        };
        let paths = match options.mode {
            GenerateMode::Beam => generator.most_probable(options.n_continuations)?,
            GenerateMode::Sample { temperature, seed } => {
                let random = Random::new(seed, sequence_id);
                let draw = |at| generator.drawn(&random, at, temperature);
                (0..options.n_continuations)
                    .map(draw)
                    .collect::<Result<_, _>>()?
            }
        };
        if !paths.iter().all(|path| path.score.is_finite()) {
            return Err(Refusal::NotFinite);
        }
        let continuation = |path: Path| Continuation {
            item_ids: path
                .positions
                .iter()
                .filter_map(|at| items.item_at(*at))
                .collect(),
            score: path.score,
        };
        Ok(Generation {
            continuations: paths.into_iter().map(continuation).collect(),
            counts,
        })
    }

    /// Returns a vector that describes a sequence.
    pub fn embed(
        &self,
        scratch: &mut Scratch,
        sequence: &Sequence<'_>,
        options: &EmbedOptions,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Embedding, Refusal> {
        let counts = self.read_history(scratch, sequence)?;
        let state = encode(
            &self.network,
            &mut scratch.encode,
            &scratch.history,
            options.pooling,
            should_stop,
        )?;
        let mut vector = state.to_vec();
        if options.normalize {
            normalize(&mut vector);
        }
        match vector.iter().all(|value| value.is_finite()) {
            true => Ok(Embedding { vector, counts }),
            false => Err(Refusal::NotFinite),
        }
    }

    /// Returns the scores of the first level's codes before the softmax. In a model with one level,
    /// these are all items' scores.
    pub fn logits(
        &self,
        scratch: &mut Scratch,
        sequence: &Sequence<'_>,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Logits, Refusal> {
        let counts = self.read_history(scratch, sequence)?;
        let state = encode(
            &self.network,
            &mut scratch.encode,
            &scratch.history,
            Pooling::Last,
            should_stop,
        )?;
        let values = level_logits(&self.network, 0, state, &mut scratch.beam.levels).to_vec();
        match values.iter().all(|value| value.is_finite()) {
            true => Ok(Logits { values, counts }),
            false => Err(Refusal::NotFinite),
        }
    }

    fn read_history(
        &self,
        scratch: &mut Scratch,
        sequence: &Sequence<'_>,
    ) -> Result<Counts, Refusal> {
        let items = self.items.as_ref();
        scratch.history.read(&self.network, items, sequence)
    }
}
