//! Inflates compressed bodies.
//!
//! The memory of a decoder is limited: a zstd window has at most 8 MiB, as RFC 9659 requires, and large Brotli
//! windows (up to 1 GiB) are refused. tower-http's decompression limits neither. A body is one member or frame, and
//! must end with it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use axum::body::BodyDataStream;
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use tokio::io::AsyncBufRead;
use tokio_util::io::{StreamReader, poll_read_buf};

use super::{Sender, broke_off};
use crate::http::problem::{Code, Problem};
use crate::http::request::body_head::Encoding;

/// A body may inflate to at most this many times its own length.
pub(in crate::http) const RATIO_MAX: u64 = 100;
/// The ratio is checked only above this many inflated bytes, because short bodies of repeated text compress well.
const RATIO_FREE_BYTES: u64 = 1 << 20;
/// Maximum window size of a zstd frame, as a power of two.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// The lower seven bits of the first byte of a Brotli stream with a large window.
const BROTLI_LARGE_WINDOW: u8 = 0x11;
/// Size of the pieces of inflated bytes.
const PIECE_BYTES: usize = 16 << 10;

/// The inflated pieces of a body.
#[derive(Debug)]
pub(in crate::http) struct Inflated {
    encoding: Encoding,
    decoder: Decoder,
    /// Inflated bytes so far.
    bytes: u64,
}

#[derive(Debug)]
enum Decoder {
    Gzip(GzipDecoder<Reader>),
    Brotli(BrotliDecoder<Reader>),
    Zstd(ZstdDecoder<Reader>),
}

type Reader = StreamReader<Compressed, Bytes>;

impl Inflated {
    pub(in crate::http) fn new(body: BodyDataStream, encoding: Encoding) -> Self {
        let refuses_large_window = encoding == Encoding::Brotli;
        let reader =
            StreamReader::new(Compressed { body, received: 0, is_broken: false, refuses_large_window });
        let decoder = match encoding {
            Encoding::Gzip => Decoder::Gzip(GzipDecoder::new(reader)),
            Encoding::Brotli => Decoder::Brotli(BrotliDecoder::new(reader)),
            Encoding::Zstd => {
                let window = DParameter::window_log_max(ZSTD_WINDOW_LOG_MAX);
                Decoder::Zstd(ZstdDecoder::with_params(reader, &[window]))
            }
        };
        Self { encoding, decoder, bytes: 0 }
    }

    /// Compressed bytes that have been received.
    pub(in crate::http) fn received(&self) -> u64 {
        self.decoder.reader().get_ref().received
    }

    /// The next piece; `None` at the end of the body.
    pub(in crate::http) fn poll_next(
        &mut self,
        sender: Sender,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Problem>>> {
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        match ready!(self.decoder.poll_read(cx, &mut piece)) {
            Ok(0) => self.poll_end(sender, cx),
            Ok(read) => {
                self.bytes += read as u64;
                let allowed = self.received().saturating_mul(RATIO_MAX).max(RATIO_FREE_BYTES);
                let is_allowed = self.bytes <= allowed;
                Poll::Ready(Some(if is_allowed { Ok(piece.freeze()) } else { Err(inflates_too_far()) }))
            }
            Err(error) => Poll::Ready(Some(Err(self.problem(sender, &error)))),
        }
    }

    /// Checks that the body ends where its compressed data ends.
    fn poll_end(&mut self, sender: Sender, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Problem>>> {
        let name = self.encoding.name();
        match ready!(self.decoder.reader_mut().as_mut().poll_fill_buf(cx)) {
            Ok([]) => Poll::Ready(None),
            Ok(_) => {
                let detail = format!("the body goes on after the end of its {name} data");
                let problem = Problem::new(Code::InvalidRequest, detail);
                Poll::Ready(Some(Err(problem.hint("send one member or frame"))))
            }
            Err(error) => Poll::Ready(Some(Err(self.problem(sender, &error)))),
        }
    }

    fn problem(&self, sender: Sender, error: &io::Error) -> Problem {
        let name = self.encoding.name();
        if self.decoder.reader().get_ref().is_broken {
            return broke_off(sender);
        }
        let detail = match (error.kind(), self.encoding) {
            (io::ErrorKind::UnexpectedEof, _) => {
                format!("the body ends before its {name} data; nothing was applied")
            }
            (_, Encoding::Gzip) => "the body is not valid gzip data; nothing was applied".to_owned(),
            (_, Encoding::Brotli) => {
                "the body is not valid br data (RFC 7932, without large windows); nothing was applied"
                    .to_owned()
            }
            (_, Encoding::Zstd) => {
                "the body is not valid zstd data with a window of at most 8 MiB; nothing was applied"
                    .to_owned()
            }
        };
        Problem::new(Code::InvalidRequest, detail)
    }
}

fn inflates_too_far() -> Problem {
    let detail = format!("the body inflates to more than {RATIO_MAX} times its length; nothing was applied");
    Problem::new(Code::ObjectTooLarge, detail).with("limit", RATIO_MAX)
}

impl Decoder {
    fn poll_read(&mut self, cx: &mut Context<'_>, piece: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self {
            Self::Gzip(decoder) => poll_read_buf(Pin::new(decoder), cx, piece),
            Self::Brotli(decoder) => poll_read_buf(Pin::new(decoder), cx, piece),
            Self::Zstd(decoder) => poll_read_buf(Pin::new(decoder), cx, piece),
        }
    }

    fn reader(&self) -> &Reader {
        match self {
            Self::Gzip(decoder) => decoder.get_ref(),
            Self::Brotli(decoder) => decoder.get_ref(),
            Self::Zstd(decoder) => decoder.get_ref(),
        }
    }

    fn reader_mut(&mut self) -> Pin<&mut Reader> {
        Pin::new(match self {
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Brotli(decoder) => decoder.get_mut(),
            Self::Zstd(decoder) => decoder.get_mut(),
        })
    }
}

/// A compressed body as it arrives.
#[derive(Debug)]
struct Compressed {
    body: BodyDataStream,
    received: u64,
    /// The connection ended before the body did.
    is_broken: bool,
    refuses_large_window: bool,
}

impl Stream for Compressed {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let piece = match ready!(Pin::new(&mut self.body).poll_next(cx)) {
            Some(Ok(piece)) => piece,
            Some(Err(error)) => {
                self.is_broken = true;
                return Poll::Ready(Some(Err(io::Error::other(error))));
            }
            None => return Poll::Ready(None),
        };
        let first = piece.first().copied().filter(|_| self.received == 0);
        self.received += piece.len() as u64;
        if self.refuses_large_window && first.is_some_and(|byte| byte & 0x7f == BROTLI_LARGE_WINDOW) {
            return Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into())));
        }
        Poll::Ready(Some(Ok(piece)))
    }
}
