//! Randomness for ids and secrets.

use rand::TryRng as _;
use rand::rngs::SysRng;

/// The operating system has no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("no random bytes from the operating system: {0}")]
pub struct RandomError(<SysRng as rand::TryRng>::Error);

/// The 62 characters in ids and secrets.
pub(crate) const BASE62: &[u8; 62] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Returns `length` base62 characters from the operating system's generator, each equally likely.
pub fn base62(length: usize) -> Result<String, RandomError> {
    characters(BASE62, length)
}

/// Returns `length` characters in an alphabet from the operating system's generator, each equally
/// likely.
pub(crate) fn characters(alphabet: &[u8], length: usize) -> Result<String, RandomError> {
    let mut text = String::with_capacity(length);
    let mut bytes = [0_u8; 64];
    while text.len() < length {
        SysRng.try_fill_bytes(&mut bytes).map_err(RandomError)?;
        text.extend(spell(alphabet, &bytes).take(length - text.len()));
    }
    Ok(text)
}

/// Returns an alphabet character for each random byte, except for the largest bytes: they would
/// favour the first characters. Of base62, these are 248 = 4 · 62 and above.
pub(crate) fn spell(alphabet: &[u8], bytes: &[u8]) -> impl Iterator<Item = char> {
    let size = alphabet.len();
    let end = 256 - 256 % size;
    let places = bytes.iter().map(|byte| usize::from(*byte));
    places
        .filter(move |place| *place < end)
        .map(move |place| char::from(alphabet[place % size]))
}

/// Returns random bytes from the operating system's generator.
pub fn bytes<const N: usize>() -> Result<[u8; N], RandomError> {
    let mut bytes = [0; N];
    SysRng.try_fill_bytes(&mut bytes).map_err(RandomError)?;
    Ok(bytes)
}

/// Returns random 64-bit numbers for values that must differ but need not be secret.
///
/// They come from a thread's generator, which the operating system seeds. No system call is
/// made for each number.
pub fn words<const N: usize>() -> [u64; N] {
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
        // The expected count is 1,000 with standard deviation 31. The bounds are seven
        // standard deviations away, which is never chance.
        assert!(
            BASE62
                .iter()
                .all(|byte| (780..1220).contains(&counts[usize::from(*byte)]))
        );
    }
}
