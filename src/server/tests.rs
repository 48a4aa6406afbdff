//! The end of a server whose journal no longer has a writer.

use std::net::SocketAddr;

use super::*;

/// Far longer than a server takes to end.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_panic_of_the_journals_writer_ends_the_server_with_an_error() {
    let mut settings = Settings::default();
    settings.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    settings.storage.in_memory = true;
    let shutdown = Shutdown::manual(Duration::from_hours(1));
    let mut server = Server::start(&settings, shutdown.clone()).await.expect("the server starts");
    let writing = shutdown.spawn_on_own_thread("journal writer", async { panic!("on purpose") });
    let Backend::Alone(alone) = &mut server.backend else { panic!("it has the store alone") };
    alone.writing = Some(writing.expect("a thread"));
    let ended = tokio::time::timeout(PATIENCE, server.run()).await.expect("the server ends by itself");
    assert!(matches!(ended, Err(Error::Writer)), "{ended:?}");
    assert!(shutdown.cut().is_cancelled());
}
