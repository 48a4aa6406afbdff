//! What a server answers to one request.

use std::io::Read as _;
use std::net::SocketAddr;

use flate2::read::GzDecoder;
use tokio::sync::watch;

use crate::harness::Client;

/// A request as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

#[derive(Debug, Default)]
pub(super) struct Answer {
    /// None if the connection ended without an answer.
    pub(super) status: Option<u16>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) text: String,
    /// Whether the body was whole.
    pub(super) is_whole: bool,
}

impl Answer {
    /// A header's value; `name` in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

impl Call {
    /// Sends the request and reads the answer to its end. `progress` has how many lines have come, once there is a head.
    pub(super) async fn send(self, api: SocketAddr, progress: watch::Sender<Option<usize>>) -> Answer {
        let mut client = Client::connect(api).await;
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        client.send_text(&self.method, &self.target, &headers, &self.body).await;
        let (status, headers) = loop {
            match client.head().await {
                Ok((100, _)) => {}
                Ok(head) => break head,
                Err(_) => return Answer::default(),
            }
        };
        let mut answer = Answer { status: Some(status), headers, ..Answer::default() };
        if self.method == "HEAD" {
            answer.is_whole = true;
            return answer;
        }
        let mut body = Vec::new();
        if answer.header("transfer-encoding").is_some() {
            loop {
                progress.send_replace(Some(lines(&body)));
                match client.chunk().await {
                    Ok(Some(chunk)) => body.extend(chunk),
                    end => {
                        answer.is_whole = end.is_ok();
                        break;
                    }
                }
            }
        } else if let Ok(whole) = client.body(status, &answer.headers).await {
            (body, answer.is_whole) = (whole, true);
        }
        if answer.header("content-encoding") == Some("gzip") {
            let mut plain = Vec::new();
            GzDecoder::new(&*body).read_to_end(&mut plain).expect("the body is gzip");
            body = plain;
        }
        answer.text = String::from_utf8_lossy(&body).into_owned();
        answer
    }
}

fn lines(body: &[u8]) -> usize {
    body.split(|byte| *byte == b'\n').count() - 1
}
