//! Calls with optional parameters, which are sent when they are awaited.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use deltaq_types::duration::format;
use serde::Serialize;

use crate::call::{Body, Call};
use crate::client::Client;
use crate::error::Error;

/// A future of a call.
pub(crate) type Sent<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// A call that is being built.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) client: Client,
    /// The call, or the error of an object that can't be written as JSON. The error is returned when the request is
    /// awaited.
    pub(crate) call: Result<Call, Error>,
}

impl Request {
    pub(crate) const fn new(client: Client, call: Call) -> Self {
        Self { client, call: Ok(call) }
    }

    pub(crate) fn json(self, document: &(impl Serialize + ?Sized)) -> Self {
        self.body(serde_json::to_vec(document).map_err(|source| Error::Object { source }))
    }

    /// A body, or the error with which the request ends.
    pub(crate) fn body(self, body: Result<Vec<u8>, Error>) -> Self {
        let Self { client, call } = self;
        let call = call.and_then(|call| Ok(call.body(Body::Json(body?.into()))));
        Self { client, call }
    }

    pub(crate) fn map(self, change: impl FnOnce(Call) -> Call) -> Self {
        Self { client: self.client, call: self.call.map(change) }
    }

    pub(crate) fn query(self, name: &'static str, value: impl ToString) -> Self {
        self.map(|call| call.query(name, Some(value)))
    }

    pub(crate) fn duration(self, name: &'static str, value: Duration) -> Self {
        self.query(name, format(value))
    }

    pub(crate) fn wait(self, wait: Duration) -> Self {
        self.duration("wait", wait).map(|call| call.wait(wait))
    }
}

/// A method that sets a parameter.
macro_rules! setter {
    (text $(#[$doc:meta])* $name:ident $parameter:literal) => {
        $(#[$doc])*
        pub fn $name(mut self, value: impl Into<String>) -> Self {
            self.request = self.request.query($parameter, value.into());
            self
        }
    };
    (number $(#[$doc:meta])* $name:ident $parameter:literal) => {
        $(#[$doc])*
        pub fn $name(mut self, value: u64) -> Self {
            self.request = self.request.query($parameter, value);
            self
        }
    };
    (percent $(#[$doc:meta])* $name:ident $parameter:literal) => {
        $(#[$doc])*
        pub fn $name(mut self, value: f64) -> Self {
            self.request = self.request.query($parameter, value);
            self
        }
    };
    (duration $(#[$doc:meta])* $name:ident $parameter:literal) => {
        $(#[$doc])*
        pub fn $name(mut self, value: std::time::Duration) -> Self {
            self.request = self.request.duration($parameter, value);
            self
        }
    };
    (wait $(#[$doc:meta])* $name:ident $parameter:literal) => {
        $(#[$doc])*
        pub fn $name(mut self, value: std::time::Duration) -> Self {
            self.request = self.request.wait(value);
            self
        }
    };
    (flag $(#[$doc:meta])* $name:ident $parameter:literal) => {
        $(#[$doc])*
        pub fn $name(mut self) -> Self {
            self.request = self.request.query($parameter, true);
            self
        }
    };
    // A condition: a header with the given value, or with a fixed one.
    (condition $(#[$doc:meta])* $name:ident $header:literal) => {
        $(#[$doc])*
        pub fn $name(mut self, value: impl Into<String>) -> Self {
            self.request = self.request.map(|call| call.condition($header, value));
            self
        }
    };
    (any $(#[$doc:meta])* $name:ident $header:literal) => {
        $(#[$doc])*
        pub fn $name(mut self) -> Self {
            self.request = self.request.map(|call| call.condition($header, "*"));
            self
        }
    };
    // A header.
    (header $(#[$doc:meta])* $name:ident $header:literal) => {
        $(#[$doc])*
        pub fn $name(mut self, value: impl Into<String>) -> Self {
            self.request = self.request.map(|call| call.header($header, value));
            self
        }
    };
    // The number of a call, with which a repeated call has no effect.
    (numbered $(#[$doc:meta])* $name:ident $parameter:literal) => {
        $(#[$doc])*
        pub fn $name(mut self, value: u64) -> Self {
            self.request = self.request.query($parameter, value).map($crate::call::Call::repeatable);
            self
        }
    };
    // A parameter that makes a repeated call have another effect.
    (once $(#[$doc:meta])* $name:ident $parameter:literal) => {
        $(#[$doc])*
        pub fn $name(mut self) -> Self {
            self.request = self.request.query($parameter, true).map($crate::call::Call::not_repeatable);
            self
        }
    };
}

/// Declares calls: the type of the reply, the function that sends the call, and the methods that set parameters.
macro_rules! requests {
    ($($(#[$about:meta])* $name:ident -> $reply:ty = $send:path {
        $($(#[$doc:meta])* $setter:ident $kind:ident $parameter:literal;)*
    })*) => {$(
        $(#[$about])*
        #[derive(Debug)]
        #[must_use = "a request is sent when it is awaited"]
        pub struct $name {
            pub(crate) request: $crate::request::Request,
        }

        impl $name {
            $($crate::request::setter!($kind $(#[$doc])* $setter $parameter);)*
        }

        impl std::future::IntoFuture for $name {
            type Output = Result<$reply, $crate::error::Error>;
            type IntoFuture = $crate::request::Sent<$reply>;

            fn into_future(self) -> Self::IntoFuture {
                Box::pin($send(self.request))
            }
        }
    )*};
}

/// Sends a request and reads the document of its reply.
pub(crate) async fn send<T: serde::de::DeserializeOwned>(request: Request) -> Result<T, Error> {
    request.client.request(request.call?).await
}

/// Sends a request whose reply has no document.
pub(crate) async fn send_nothing(request: Request) -> Result<(), Error> {
    request.client.request_nothing(request.call?).await
}

pub(crate) use {requests, setter};
