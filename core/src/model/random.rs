//! The one source of randomness for ids and secrets.

use rand::TryRng as _;
use rand::rngs::SysRng;

use crate::model::error::{Error, Result};

/// The 62 characters of ids and secrets.
pub(crate) const BASE62: &[u8; 62] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// `length` characters of base62 from the operating system's generator, each equally likely.
pub(crate) fn base62(length: usize) -> Result<String> {
    let mut text = String::with_capacity(length);
    let mut bytes = [0_u8; 64];
    while text.len() < length {
        SysRng.try_fill_bytes(&mut bytes).map_err(Error::internal)?;
        // 248 = 4 · 62: larger bytes would favour the first characters, so they are drawn again.
        let drawn = bytes
            .iter()
            .filter(|byte| **byte < 248)
            .map(|byte| char::from(BASE62[usize::from(*byte) % 62]));
        text.extend(drawn.take(length - text.len()));
    }
    Ok(text)
}

/// Random numbers of 64 bits, for what must be different and need not be a secret: a generator in each thread, seeded by
/// the operating system, makes them without asking it each time.
pub(crate) fn words<const N: usize>() -> [u64; N] {
    rand::random()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_equally_likely() {
        let text = base62(62_000).unwrap();
        let mut counts = [0_u32; 128];
        text.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
        // Expected 1,000 each with a standard deviation of 31: seven of them is never chance.
        assert!(
            BASE62
                .iter()
                .all(|byte| (780..1220).contains(&counts[usize::from(*byte)]))
        );
    }
}
