//! Who may call what, through real TLS sockets: each call has its role, a node speaks for its own index, a session is
//! bound to a certificate, and without a certificate nothing but health answers.

mod support;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use hyloc_fusion_center::{FusionListeners, FusionSummary, run};
use proto::channel::connect;
use proto::v1::fusion_client::FusionClient;
use proto::{SESSION_KEY, v1};
use support::{Echoes, Node, Options, application, options, within};
use telemetry::client::request_with;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use trust::authority::{self, Authority};
use trust::{ClientTls, Identity, Name, Paths, Role};

/// An authority with a directory for what it issues.
struct Lab {
    directory: TempDir,
    authority: Authority,
}

impl Lab {
    fn new() -> Self {
        let pair = authority::make("lab", SystemTime::now(), 30).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), &pair.certificate).unwrap();
        Self { directory, authority: Authority::from_pem(&pair.certificate, &pair.key).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Issues a certificate; one that exists is replaced.
    fn issue(&self, role: Role) -> Paths {
        let file = role.to_string().replace('/', "-");
        let name = Name::new("lab", role).unwrap();
        let pair = self.authority.issue(&name, &[], SystemTime::now(), 10).unwrap();
        let (cert, key) = (self.path(&format!("{file}.pem")), self.path(&format!("{file}.key")));
        std::fs::write(&key, pair.key).unwrap();
        std::fs::write(&cert, pair.certificate).unwrap();
        Paths { ca: self.path("ca.pem"), cert, key }
    }

    fn client(&self, role: Role) -> ClientTls {
        Identity::load(self.issue(role)).unwrap().client(Some(Role::FusionCenter))
    }

    fn anonymous(&self) -> ClientTls {
        ClientTls::anonymous(&self.path("ca.pem")).unwrap()
    }
}

/// A fusion center with TLS on gRPC, and on HTTP, which listens on all addresses.
struct Center {
    grpc: String,
    http: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<FusionSummary>>,
}

impl Center {
    async fn start(lab: &Lab) -> Self {
        let mut options = options(Options::default());
        let Paths { ca, cert, key } = lab.issue(Role::FusionCenter);
        (options.tls.tls_ca, options.tls.tls_cert, options.tls.tls_key) = (Some(ca), Some(cert), Some(key));
        options.http_listen = "0.0.0.0:0".parse().unwrap();
        let site = options.load().unwrap();
        let listeners = FusionListeners::bind(&options).await.unwrap();
        let grpc = listeners.grpc.local_addr().unwrap().to_string();
        let http = ([127, 0, 0, 1], listeners.http.local_addr().unwrap().port()).into();
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(options, site, listeners, stop.clone()));
        Self { grpc, http, stop, task }
    }

    async fn channel(&self, tls: &ClientTls) -> Result<Channel, Status> {
        within(connect(&self.grpc, Some(tls))).await
    }

    async fn client(&self, tls: &ClientTls) -> FusionClient<Channel> {
        FusionClient::new(self.channel(tls).await.unwrap())
    }

    async fn http(&self, tls: &ClientTls, method: &'static str, path: &str) -> u16 {
        let (url, tls) = (format!("https://{}{path}", self.http), tls.clone());
        let ask = move || request_with(Some(&tls), method, &url, "").unwrap().status;
        within(tokio::task::spawn_blocking(ask)).await.unwrap()
    }

    async fn stop(self) -> FusionSummary {
        self.stop.cancel();
        within(self.task).await.unwrap().unwrap()
    }
}

/// The codes with which the calls end: Register, Report, Truth, Watch, Status, reflection.
async fn codes(channel: Channel) -> [Code; 6] {
    let code = |status: Result<(), Status>| status.map_or_else(|status| status.code(), |()| Code::Ok);
    let mut client = FusionClient::new(channel.clone());
    let register = client.register(application("someone", None)).await.map(drop);
    let mut report = Request::new(tokio_stream::empty());
    report.metadata_mut().insert(SESSION_KEY, "unknown".parse().unwrap());
    let report = client.report(report).await.map(drop);
    let truth = client.truth(tokio_stream::empty()).await.map(drop);
    let watch = client.watch(v1::WatchRequest {}).await.map(drop);
    let status = client.status(v1::StatusRequest {}).await.map(drop);
    let listing = MessageRequest::ListServices(String::new());
    let listing = ServerReflectionRequest { host: String::new(), message_request: Some(listing) };
    let mut reflection = ServerReflectionClient::new(channel);
    let reflection = reflection.server_reflection_info(tokio_stream::once(listing)).await.map(drop);
    [register, report, truth, watch, status, reflection].map(code)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_certificate_only_health_answers() {
    let lab = Lab::new();
    let center = Center::start(&lab).await;
    let anonymous = lab.anonymous();
    let channel = center.channel(&anonymous).await.unwrap();
    let health = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await;
    assert!(health.is_ok(), "{health:?}");
    assert_eq!(within(codes(channel)).await, [Code::Unauthenticated; 6]);

    assert!([200, 503].contains(&center.http(&anonymous, "GET", "/health").await));
    for path in ["/", "/metrics", "/api", "/api/summary", "/api/site", "/api/live", "/api/control"] {
        assert_eq!(center.http(&anonymous, "GET", path).await, 401, "{path}");
    }
    for path in ["/api/control/motion", "/api/control/profile"] {
        assert_eq!(center.http(&anonymous, "POST", path).await, 401, "{path}");
    }
    // Without TLS nothing answers at all, health neither.
    let mut plain = match connect(&center.grpc, None).await {
        Ok(channel) => HealthClient::new(channel),
        Err(_) => return drop(center.stop().await),
    };
    assert!(within(plain.check(HealthCheckRequest::default())).await.is_err());
    center.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_has_its_role() {
    let lab = Lab::new();
    let center = Center::start(&lab).await;
    // An unknown session is refused as such, after the role was accepted.
    let (ok, denied, no_session) = (Code::Ok, Code::PermissionDenied, Code::Unauthenticated);
    let expected = [
        (Role::Node(0), [ok, no_session, denied, denied, denied, denied]),
        (Role::Simulator, [denied, denied, ok, denied, denied, denied]),
        (Role::Backhaul, [denied; 6]),
        (Role::Watcher, [denied, denied, denied, ok, ok, ok]),
        (Role::Operator, [denied, denied, denied, ok, ok, ok]),
    ];
    for (role, expected) in expected {
        let channel = center.channel(&lab.client(role)).await.unwrap();
        assert_eq!(within(codes(channel)).await, expected, "{role}");
    }
    // Pages are for watchers, control for operators; here it is not allowed to anybody (403), but for another reason.
    let statuses = async |role: Role| {
        let tls = lab.client(role);
        [
            center.http(&tls, "GET", "/api/summary").await,
            center.http(&tls, "GET", "/metrics").await,
            center.http(&tls, "POST", "/api/control/motion").await,
        ]
    };
    assert_eq!(statuses(Role::Watcher).await, [200, 200, 403]);
    assert_eq!(statuses(Role::Operator).await, [200, 200, 403]);
    assert_eq!(statuses(Role::Node(0)).await, [403; 3]);
    let reason = async |role: Role| {
        let (url, tls) = (format!("https://{}/api/control/motion", center.http), lab.client(role));
        let ask = move || request_with(Some(&tls), "POST", &url, "").unwrap().body;
        within(tokio::task::spawn_blocking(ask)).await.unwrap()
    };
    assert!(reason(Role::Watcher).await.contains("needs the certificate of an operator"));
    assert!(!reason(Role::Operator).await.contains("certificate"));
    center.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_do_not_get_past_the_handshake() {
    let (lab, other) = (Lab::new(), Lab::new());
    let center = Center::start(&lab).await;
    // Another authority on both sides: the client refuses the server.
    assert!(center.channel(&other.client(Role::Node(0))).await.is_err());
    // A client that trusts this authority, with a certificate of another: the server refuses the client.
    let Paths { cert, key, .. } = other.issue(Role::Node(0));
    let forged = Identity::load(Paths { ca: lab.path("ca.pem"), cert, key }).unwrap();
    let forged = forged.client(Some(Role::FusionCenter));
    let called = match center.channel(&forged).await {
        Ok(channel) => {
            within(FusionClient::new(channel).register(application("forged", None))).await.map(drop)
        }
        Err(status) => Err(status),
    };
    let status = called.unwrap_err();
    assert!(![Code::Ok, Code::AlreadyExists].contains(&status.code()), "{status}");
    // Nobody took a seat.
    let mut watcher = center.client(&lab.client(Role::Watcher)).await;
    let nodes = watcher.status(v1::StatusRequest {}).await.unwrap().into_inner().nodes;
    assert!(nodes.iter().all(|node| node.identity.is_empty()), "{nodes:?}");
    center.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_says_nothing_for_another_index() {
    let lab = Lab::new();
    let center = Center::start(&lab).await;
    let (one, two) = (lab.client(Role::Node(1)), lab.client(Role::Node(2)));
    let mut thief = center.client(&two).await;
    let refused = thief.register(application("node-1", Some(1))).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(refused.message(), "a certificate of node/2 can say nothing for index 1");
    // An index that is left open is that of the certificate.
    let reply = thief.register(application("node-2", None)).await.unwrap().into_inner();
    assert_eq!(reply.index, 2);

    // A stolen session opens no stream, and its owner loses nothing.
    let mut client = center.client(&one).await;
    let owner = client.register(application("node-1", Some(1))).await.unwrap().into_inner();
    let steal = async |mut thief: FusionClient<Channel>| {
        let (_reports, outgoing) = tokio::sync::mpsc::channel(1);
        let mut request = Request::new(ReceiverStream::<v1::FrameReport>::new(outgoing));
        request.metadata_mut().insert(SESSION_KEY, owner.session.parse().unwrap());
        within(thief.report(request)).await.unwrap_err().code()
    };
    assert_eq!(steal(thief.clone()).await, Code::Unauthenticated);
    let echoes = Echoes::new();
    let mut owner_node = Node::open(client, 1, owner.session.clone()).await;
    assert_eq!(steal(thief.clone()).await, Code::Unauthenticated, "nor while it is in use");
    owner_node.send(echoes.report(1, 0)).await;
    let mut others = Vec::new();
    for index in [0, 2] {
        let mut client = center.client(&lab.client(Role::Node(index))).await;
        let reply = client.register(application(&format!("node-{index}"), None)).await;
        let reply = reply.unwrap_or_else(|status| panic!("{index}: {status}")).into_inner();
        let mut node = Node::open(client, index as usize, reply.session).await;
        node.send(echoes.report(index as usize, 0)).await;
        others.push(node);
    }
    assert_eq!(owner_node.acknowledgement().await.unwrap().fused, 3, "the frame was fused with its report");
    let summary = center.stop().await;
    assert_eq!((summary.figures.fixes, summary.unaccounted), (1, 0));
}

/// Certificates are replaced while reports flow: streams go on, new connections get the new certificate, nothing is
/// lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_under_load_loses_no_report() {
    let lab = Lab::new();
    let center = Center::start(&lab).await;
    let watcher = lab.client(Role::Watcher);
    let echoes = Echoes::new();
    let mut nodes = Vec::new();
    for index in 0..3 {
        let mut client = center.client(&lab.client(Role::Node(index))).await;
        let reply = client.register(application(&format!("node-{index}"), None)).await.unwrap().into_inner();
        nodes.push(Node::open(client, index as usize, reply.session).await);
    }
    let before = served_certificate(&center, &watcher).await;
    let mut frame = 0;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut renewed = None;
    loop {
        for node in &mut nodes {
            node.send(echoes.report(node.index, frame)).await;
        }
        for node in &mut nodes {
            assert_eq!(node.acknowledgement().await.unwrap().fused, 3, "frame {frame}");
        }
        frame += 1;
        if frame == 3 {
            lab.issue(Role::FusionCenter);
        }
        if renewed.is_none() && frame > 3 && served_certificate(&center, &watcher).await != before {
            renewed = Some(frame);
        }
        // Some more frames over the old streams after the new certificate is in force.
        if renewed.is_some_and(|since| frame >= since + 3) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "the new certificate was never served");
    }
    let summary = center.stop().await;
    assert_eq!((summary.figures.fixes, summary.unaccounted), (frame, 0));
}

/// The certificate that the fusion center serves to a new connection.
async fn served_certificate(center: &Center, tls: &ClientTls) -> Vec<u8> {
    let stream = within(tokio::net::TcpStream::connect(&center.grpc)).await.unwrap();
    let stream = within(tls.connect(stream, trust::Protocol::Grpc)).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}
