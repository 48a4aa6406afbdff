//! The address of a client behind a trusted proxy: the header `X-Forwarded-For`, and the PROXY protocol (versions 1 and 2).
//!
//! The address appears in the audit log. No decision depends on it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncReadExt as _};

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// First bytes of a header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Maximum length of a version 1 header, in bytes.
const LINE_BYTES_MAX: usize = 107;
/// Maximum length of a version 2 header after its fixed part, in bytes. This part has addresses, and extensions that
/// are ignored.
const ADDRESS_BYTES_MAX: usize = 4_096;

/// The proxies that are trusted to report the address of a client.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies {
    networks: Arc<[IpNet]>,
    proxy_protocol: bool,
}

impl TrustedProxies {
    /// Trusts proxies in these networks. With `proxy_protocol`, each of their connections begins with a PROXY header.
    #[must_use]
    pub fn new(networks: impl IntoIterator<Item = IpNet>, proxy_protocol: bool) -> Self {
        Self { networks: networks.into_iter().collect(), proxy_protocol }
    }

    fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Whether a connection of this peer begins with a PROXY header.
    pub(super) fn sends_header(&self, peer: SocketAddr) -> bool {
        self.proxy_protocol && self.trusts(peer.ip())
    }

    /// The client of a request: the last address in `X-Forwarded-For` that is not a trusted proxy.
    pub(super) fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> Option<IpAddr> {
        if self.networks.is_empty() || !self.trusts(peer.ip()) {
            return None;
        }
        let mut client = None;
        let values = headers.get_all(&FORWARDED_FOR).into_iter().collect::<Vec<_>>();
        for text in values.iter().rev().flat_map(|value| value.to_str().unwrap_or_default().rsplit(',')) {
            // Everything before an entry that is not an address was written by the client and is not trusted.
            let Some(address) = parse_address(text.trim()) else { break };
            client = Some(address);
            if !self.trusts(address) {
                break;
            }
        }
        client
    }
}

/// Parses an address. Some proxies append a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

/// Reads the PROXY header of a connection. `None` means that the proxy speaks for itself, as in a health check.
pub(super) async fn read_header(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut start = [0; SIGNATURE.len()];
    stream.read_exact(&mut start).await?;
    if &start == SIGNATURE { read_binary(stream).await } else { read_line(stream, &start).await }
}

async fn read_line(stream: &mut (impl AsyncRead + Unpin), start: &[u8]) -> io::Result<Option<SocketAddr>> {
    let mut line = start.to_vec();
    if !line.starts_with(b"PROXY ") {
        return Err(invalid("the connection begins with no PROXY header"));
    }
    while !line.ends_with(b"\r\n") {
        if line.len() >= LINE_BYTES_MAX {
            return Err(invalid("the PROXY header is too long"));
        }
        line.push(stream.read_u8().await?);
    }
    let line = String::from_utf8(line).map_err(|_| invalid("the PROXY header is no text"))?;
    let parts: Vec<&str> = line.trim_end().split(' ').collect();
    match parts.as_slice() {
        ["PROXY", "UNKNOWN", ..] => Ok(None),
        ["PROXY", "TCP4" | "TCP6", source, _, port, _] => {
            let (source, port) = (source.parse::<IpAddr>().ok(), port.parse::<u16>().ok());
            let address = source.zip(port).map(SocketAddr::from);
            address.map(Some).ok_or_else(|| invalid("the PROXY header has an invalid address"))
        }
        _ => Err(invalid("the PROXY header has an unknown form")),
    }
}

async fn read_binary(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let (command, family, length) =
        (stream.read_u8().await?, stream.read_u8().await?, usize::from(stream.read_u16().await?));
    if length > ADDRESS_BYTES_MAX {
        return Err(invalid("the PROXY header is too long"));
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    let mut rest = rest.as_slice();
    match (command, family) {
        (0x21, 0x11) => {
            let (source, _) = (Ipv4Addr::from(rest.read_u32().await?), rest.read_u32().await?);
            Ok(Some((source, rest.read_u16().await?).into()))
        }
        (0x21, 0x21) => {
            let (source, _) = (Ipv6Addr::from(rest.read_u128().await?), rest.read_u128().await?);
            Ok(Some((source, rest.read_u16().await?).into()))
        }
        // LOCAL, which is the proxy's own connection, or an address family without IP addresses.
        (0x20 | 0x21, _) => Ok(None),
        _ => Err(invalid("the PROXY header has an unknown version or command")),
    }
}

fn invalid(detail: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, detail)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn proxies() -> TrustedProxies {
        TrustedProxies::new(["10.0.0.0/8", "::1/128"].map(|text| text.parse().unwrap()), true)
    }

    fn client(peer: &str, values: &[&'static str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&FORWARDED_FOR, HeaderValue::from_static(value));
        }
        proxies().client(peer.parse().unwrap(), &headers).map(|address| address.to_string())
    }

    #[test]
    fn only_a_trusted_proxy_names_the_client() {
        assert_eq!(client("192.0.2.1:1", &["203.0.113.7"]), None, "the peer is no trusted proxy");
        assert_eq!(client("10.1.2.3:1", &[]), None);
        assert_eq!(client("10.1.2.3:1", &["203.0.113.7"]).as_deref(), Some("203.0.113.7"));
        assert_eq!(client("[::ffff:10.1.2.3]:1", &["203.0.113.7"]).as_deref(), Some("203.0.113.7"));
        assert_eq!(client("[::1]:1", &["[2001:db8::1]:443"]).as_deref(), Some("2001:db8::1"));
    }

    #[test]
    fn a_client_cannot_choose_its_address() {
        for values in
            [&["198.51.100.1, 203.0.113.7, 10.9.9.9"][..], &["198.51.100.1", "203.0.113.7", "10.9.9.9"]]
        {
            assert_eq!(client("10.1.2.3:1", values).as_deref(), Some("203.0.113.7"));
        }
        assert_eq!(client("10.1.2.3:1", &["10.8.8.8, nonsense, 10.9.9.9"]).as_deref(), Some("10.9.9.9"));
        assert_eq!(client("10.1.2.3:1", &["nonsense"]), None);
    }

    async fn header(bytes: &[u8]) -> Result<(Option<String>, usize), String> {
        let mut stream = bytes;
        let read = read_header(&mut stream).await.map_err(|error| error.to_string())?;
        Ok((read.map(|address| address.to_string()), stream.len()))
    }

    #[tokio::test]
    async fn both_versions_of_the_header_are_read_to_their_end() {
        let line = b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 7070\r\nGET /";
        assert_eq!(header(line).await, Ok((Some("203.0.113.7:4711".to_owned()), 5)));
        let line = b"PROXY TCP6 2001:db8::1 ::1 4711 7070\r\n";
        assert_eq!(header(line).await, Ok((Some("[2001:db8::1]:4711".to_owned()), 0)));
        assert_eq!(header(b"PROXY UNKNOWN\r\nGET /").await, Ok((None, 5)));
        let binary = |command: u8, family: u8, rest: &[u8]| {
            let mut bytes = SIGNATURE.to_vec();
            bytes.extend([command, family, 0, u8::try_from(rest.len()).unwrap()]);
            bytes.extend(rest);
            bytes.extend(b"GET /");
            bytes
        };
        let four = [203, 0, 113, 7, 10, 0, 0, 1, 0x12, 0x67, 0x1b, 0x9e, 4, 0, 1, 9];
        assert_eq!(header(&binary(0x21, 0x11, &four)).await, Ok((Some("203.0.113.7:4711".to_owned()), 5)));
        assert_eq!(header(&binary(0x20, 0, &[])).await, Ok((None, 5)));
        assert!(header(&binary(0x21, 0x11, &four[..8])).await.is_err());
        assert!(header(&binary(0x31, 0x11, &four)).await.is_err());
    }

    #[tokio::test]
    async fn what_is_no_header_is_refused() {
        for bytes in [
            &b"GET /v1/info HTTP/1.1\r\n\r\n"[..],
            b"PROXY TCP4 203.0.113.7 10.0.0.1 4711\r\n",
            b"PROXY TCP4 nonsense 10.0.0.1 4711 7070\r\n",
            b"PROXY TCP4 203.0.113.7 10.0.0.1 99999 7070\r\n",
            b"PROXY",
        ] {
            assert!(header(bytes).await.is_err(), "{}", String::from_utf8_lossy(bytes));
        }
        assert!(header(&[b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat()).await.is_err());
    }
}
