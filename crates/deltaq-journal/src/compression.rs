//! Compression of runs and of rows of the journal, for stores whose databases don't compress well.

use std::io::{self, Read as _};

/// The level that compresses fastest. A higher one would save little, because entries repeat the same few names.
const LEVEL: i32 = 1;

/// Compresses a text.
#[expect(clippy::expect_used, reason = "the output has room for any compressed form of the text")]
pub(super) fn compress(text: &str) -> Vec<u8> {
    zstd::bulk::compress(text.as_bytes(), LEVEL).expect("memory is compressed into memory")
}

/// Restores a text of at most this many bytes. At most one byte more is read, because a damaged text could be huge.
///
/// # Errors
/// It is not the compressed form of such a text.
pub(super) fn expand(compressed: &[u8], bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    let decoder = zstd::Decoder::with_buffer(compressed)?;
    let read = decoder.take(bytes_max.saturating_add(1)).read_to_string(&mut text)?;
    if read as u64 <= bytes_max {
        Ok(text)
    } else {
        Err(invalid(format!("its text has more than {bytes_max} bytes")))
    }
}

/// Restores a text of this many bytes.
///
/// # Errors
/// It is not the compressed form of such a text.
pub(super) fn expand_to(compressed: &[u8], bytes: u64) -> io::Result<String> {
    let text = expand(compressed, bytes)?;
    if text.len() as u64 == bytes {
        Ok(text)
    } else {
        Err(invalid(format!("its text does not have {bytes} bytes")))
    }
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_and_only_with_its_length() {
        for text in ["", "a", "näïve \0", &"[{\"slot\":1}]".repeat(10_000)] {
            let (compressed, bytes) = (compress(text), text.len() as u64);
            assert_eq!(expand_to(&compressed, bytes).unwrap(), text);
            for other in [bytes + 1, bytes.wrapping_sub(1), u64::MAX, 0] {
                assert_eq!(expand_to(&compressed, other).is_ok(), other == bytes, "{other}");
                assert_eq!(expand(&compressed, other).is_ok(), other >= bytes, "{other}");
            }
            assert!(expand(&compressed[..compressed.len() - 1], bytes).is_err());
        }
        assert!(expand(b"[]", 2).is_err());
    }

    /// The size in the row may be damaged, too.
    #[test]
    fn a_text_that_claims_to_be_huge_takes_no_memory() {
        let huge = zstd::bulk::compress(&vec![b' '; 100 << 20], LEVEL).unwrap();
        assert!(huge.len() < 100_000);
        assert!(expand(&huge, 2).is_err());
    }
}
