//! Compressing bodies of requests.

use std::io::Cursor;

use async_compression::Level;
use async_compression::tokio::bufread::{BrotliEncoder, GzipEncoder, ZstdEncoder};
use async_compression::zstd::CParameter;
use tokio::io::{AsyncBufRead, AsyncReadExt as _, BufReader};

/// An encoding of bodies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Encoding {
    Gzip,
    Brotli,
    Zstd,
}

/// All encodings that the server accepts.
pub(crate) const ALL: [Encoding; 3] = [Encoding::Gzip, Encoding::Brotli, Encoding::Zstd];

impl Encoding {
    /// The name in `Content-Encoding`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// The compressed text.
pub(crate) async fn compressed(encoding: Encoding, text: impl AsyncBufRead + Unpin) -> Vec<u8> {
    let mut whole = Vec::new();
    let read = match encoding {
        Encoding::Gzip => GzipEncoder::new(text).read_to_end(&mut whole).await,
        Encoding::Brotli => BrotliEncoder::with_quality(text, Level::Fastest).read_to_end(&mut whole).await,
        Encoding::Zstd => ZstdEncoder::new(text).read_to_end(&mut whole).await,
    };
    read.expect("memory takes all bytes");
    whole
}

/// `start`, then `unit` repeated up to `bytes`, compressed. Most of the memory is that of the encoder.
pub(crate) async fn bomb(encoding: Encoding, start: &str, unit: &str, bytes: usize) -> Vec<u8> {
    let piece = unit.repeat((1 << 20) / unit.len());
    let pieces = std::iter::repeat_n(piece, bytes >> 20);
    let pieces = std::iter::once(start.to_owned())
        .chain(pieces)
        .map(|piece| Ok::<_, std::io::Error>(Cursor::new(piece.into_bytes())));
    let reader = tokio_util::io::StreamReader::new(futures_util::stream::iter(pieces));
    compressed(encoding, BufReader::new(reader)).await
}

/// A zstd frame whose header asks for a window of 128 MiB.
pub(crate) async fn zstd_with_a_large_window() -> Vec<u8> {
    let text = "{}".repeat(1 << 20);
    let window = CParameter::window_log(27);
    let mut encoder = ZstdEncoder::with_quality_and_params(text.as_bytes(), Level::Fastest, &[window]);
    let mut whole = Vec::new();
    encoder.read_to_end(&mut whole).await.expect("memory takes all bytes");
    whole
}

/// A Brotli stream whose header asks for a window of 1 GiB, before an uncompressed block of 16 MiB that has not ended.
pub(crate) fn brotli_with_a_large_window() -> Vec<u8> {
    let (large_window, window_bits) = (0x11_u64, 30_u64);
    let (six_nibbles, length, is_uncompressed) = (2_u64, (1_u64 << 24) - 1, 1_u64);
    let header = large_window | window_bits << 8 | six_nibbles << 15 | length << 17 | is_uncompressed << 41;
    let mut stream = header.to_le_bytes()[..6].to_vec();
    stream.resize(1 << 10, b' ');
    stream
}
