//! Bytes from a Python iterator, one chunk at a time.

use std::io::{self, BufRead, Read};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyIterator;

/// A reader of the chunks of a Python iterator. It holds one chunk in memory. It attaches to the
/// interpreter only to get the next chunk, so other Python threads run while a chunk is read.
pub struct Chunks {
    iterator: Py<PyIterator>,
    chunk: Option<PyBackedBytes>,
    /// Number of bytes of the chunk that were consumed.
    consumed: usize,
    raised: Option<PyErr>,
}

impl Chunks {
    /// Creates a reader. Fails if the object is not iterable.
    pub fn new(iterable: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            iterator: iterable.try_iter()?.unbind(),
            chunk: None,
            consumed: 0,
            raised: None,
        })
    }

    /// Returns the exception that ended the chunks. A reader on top of this one reports only that
    /// its input ended.
    pub fn take_raised(&mut self) -> Option<PyErr> {
        self.raised.take()
    }

    /// Replaces the chunk with the next one, or with `None` after the last one.
    fn load_next(&mut self) -> PyResult<()> {
        Python::attach(|py| {
            self.chunk = None;
            self.consumed = 0;
            // An iterator in C, such as a file's, does not handle Ctrl-C.
            py.check_signals()?;
            if let Some(chunk) = self.iterator.bind(py).clone().next() {
                self.chunk = Some(chunk?.extract()?);
            }
            Ok(())
        })
    }

    fn remaining(&self) -> &[u8] {
        let chunk = self.chunk.as_deref().unwrap_or_default();
        &chunk[self.consumed..]
    }
}

impl Read for Chunks {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(into)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Chunks {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.remaining().is_empty() {
            if let Err(raised) = self.load_next() {
                self.raised = Some(raised);
                return Err(io::ErrorKind::Other.into());
            }
            if self.chunk.is_none() {
                break;
            }
        }
        Ok(self.remaining())
    }

    fn consume(&mut self, n: usize) {
        self.consumed += n;
    }
}
