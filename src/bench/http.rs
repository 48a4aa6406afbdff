//! The part of HTTP/1.1 that a load generator needs.

use std::io;

use memchr::memmem;

use super::wire::Wire;

/// A persistent connection to a server.
#[derive(Debug)]
pub struct HttpClient {
    wire: Wire,
    /// The headers of every request, as they are sent.
    headers: String,
}

impl HttpClient {
    /// Connects to a host and port. Requests carry this bearer token.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn open(authority: &str, token: Option<&str>) -> io::Result<Self> {
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let headers = format!("host: {authority}\r\n{token}content-type: application/json\r\n");
        Ok(Self { wire: Wire::open(authority).await?, headers })
    }

    /// The head of a request, up to but not including the value of `content-length`.
    pub(super) fn head(&self, method: &str, path: &str) -> String {
        format!("{method} {path} HTTP/1.1\r\n{}content-length: ", self.headers)
    }

    /// Makes one unmeasured request and returns the body of the response.
    ///
    /// # Errors
    /// The connection fails, or the response is not a success.
    pub async fn call(&mut self, method: &str, path: &str, body: &str) -> io::Result<&[u8]> {
        let request = format!("{}{}\r\n\r\n{body}", self.head(method, path), body.len());
        self.send(request.as_bytes()).await?;
        self.response().await
    }

    /// Sends a rendered request.
    pub(super) async fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.wire.send(request).await
    }

    /// The body of the next response, which must be a success.
    pub(super) async fn response(&mut self) -> io::Result<&[u8]> {
        let mut body = 0;
        let response = self.wire.receive(|received| {
            let Some((head, length)) = lengths(received)? else { return Ok(None) };
            body = head;
            Ok(Some(head + length))
        });
        let response = response.await?;
        if response.get(9) != Some(&b'2') {
            let problem = String::from_utf8_lossy(response.get(body..).unwrap_or_default());
            return Err(io::Error::other(format!("the server refused a request: {}", problem.trim_end())));
        }
        Ok(response.get(body..).unwrap_or_default())
    }
}

/// The lengths of the head and of the body of a response; `None` while the head is incomplete.
fn lengths(received: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let Some(end) = memmem::find(received, b"\r\n\r\n") else { return Ok(None) };
    let head = received.get(..end).unwrap_or_default();
    if head.get(9..12) == Some(b"204") {
        return Ok(Some((end + 4, 0)));
    }
    let length = head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(b"content-length:".len())?;
        let digits = value.iter().filter(|byte| byte.is_ascii_digit());
        let number = || digits.fold(0, |number: usize, digit| 10 * number + usize::from(digit - b'0'));
        name.eq_ignore_ascii_case(b"content-length:").then(number)
    });
    match length {
        Some(length) => Ok(Some((end + 4, length))),
        None => Err(io::Error::other("a response has no content-length")),
    }
}

/// The ids of the leases in the response to a pop, in its order. Objects of a run never contain the searched text.
pub(super) fn leases(popped: &[u8]) -> impl Iterator<Item = &[u8]> {
    const BEFORE: &[u8] = b"\"lease\":{\"id\":\"";
    memmem::find_iter(popped, BEFORE).filter_map(|found| {
        let rest = popped.get(found + BEFORE.len()..)?;
        rest.get(..memchr::memchr(b'"', rest)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_response_comes_from_its_head() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nx-request-id: 7\r\n\r\n";
        let response = [&head[..], b"{\"a\":123456}"].concat();
        assert_eq!(lengths(&response).unwrap(), Some((head.len(), 12)));
        assert_eq!(lengths(&response[..head.len() - 1]).unwrap(), None);
        assert_eq!(lengths(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(), Some((27, 0)));
        assert!(lengths(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn leases_are_found_in_order() {
        let text = br#"{"items":[{"key":"a","lease":{"id":"x-1","token":1}},{"key":"b","lease":{"id":"x-2"}}],"settled":[]}"#;
        assert_eq!(leases(text).collect::<Vec<_>>(), [b"x-1", b"x-2"]);
        assert_eq!(leases(b"{\"items\":[],\"settled\":[]}").count(), 0);
    }
}
