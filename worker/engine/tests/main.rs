//! Engine tests on packages that are made in memory, and on PyTorch's golden packages.
#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod generation;
mod golden;
mod item_tables;
mod packages;
mod ranking;
mod reference;
mod sequences;
mod support;
