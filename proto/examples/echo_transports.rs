//! Measures both transports of echo frames in one run, on loopback, in one process. A measurement, not a test: it depends
//! on the machine.
//!
//! `cargo run --release -p hyloc-proto --example echo_transports -- [ROUNDS] [SENSORS] [SUBCARRIERS]`
//!
//! Rounds alternate between ZeroMQ and gRPC, so that drift affects both equally. Latency: one frame at a time, from its
//! publication to its delivery. Throughput: as many frames as the credit of 64 allows.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::{Duration, Instant};

use hyloc_proto::HTTP2_WINDOW_BYTES;
use hyloc_proto::convert::FrameId;
use hyloc_proto::echo::{
    EchoFrame, EchoLayout, EchoPublisher, EchoSubscriber, EchoesEndpoint, EchoesService, Offer, Publication,
    PushTarget, Subscription, Timings,
};
use model::CMatrix;
use num_complex::Complex64;
use tokio_stream::wrappers::TcpListenerStream;

const HASH: [u8; 32] = [7; 32];
const WINDOW: u32 = 64;
const SINGLE_FRAMES: u64 = 1000;
const BURST_FRAMES: u64 = 5000;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A publisher connected to one subscriber.
struct Link {
    publisher: EchoPublisher,
    subscriber: EchoSubscriber,
}

impl Link {
    async fn zeromq(publication: &Publication) -> Outcome<Self> {
        let publisher = EchoPublisher::bind(std::net::TcpListener::bind("127.0.0.1:0")?, publication)?;
        let Publication { sensors, subcarriers, site_sha256, .. } = *publication;
        let address = publisher.address().ok_or("no address")?.to_string();
        let timings = Timings { silence: Duration::from_secs(10), ..Timings::default() };
        let subscriber = EchoSubscriber::start(Subscription {
            address,
            node: 0,
            site_sha256,
            window: WINDOW,
            sensors,
            subcarriers,
            timings,
        });
        publisher.until_all_subscribed().await;
        Ok(Self { publisher, subscriber })
    }

    async fn grpc(publication: &Publication) -> Outcome<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let (service, address) = (EchoesService::default(), listener.local_addr()?.to_string());
        let server = tonic::transport::Server::builder()
            .tcp_nodelay(true)
            .initial_stream_window_size(HTTP2_WINDOW_BYTES)
            .initial_connection_window_size(HTTP2_WINDOW_BYTES)
            .add_service(EchoesEndpoint(service.clone()))
            .serve_with_incoming(trust::secured(TcpListenerStream::new(listener), trust::Acceptor::plain()));
        tokio::spawn(server);
        let Publication { sensors, subcarriers, site_sha256, .. } = *publication;
        let layout =
            EchoLayout { node: 0, site_sha256, sensors, subcarriers, bandwidth_hz: 1e8, window: WINDOW };
        let subscriber = service.open(layout);
        let publisher = EchoPublisher::push(vec![PushTarget { address, identity: None }], publication);
        publisher.until_all_subscribed().await;
        Ok(Self { publisher, subscriber })
    }

    /// Latencies of single frames in microseconds, and frames per second in a burst.
    async fn measure(mut self, frame: &EchoFrame) -> Outcome<(Vec<f64>, f64)> {
        let mut latencies_us = Vec::new();
        for _ in 0..SINGLE_FRAMES {
            let began = Instant::now();
            while self.publisher.publish(0, frame.clone()) != Offer::Sent {
                tokio::task::yield_now().await;
            }
            self.subscriber.next().await.ok_or("no frame")??;
            latencies_us.push(began.elapsed().as_secs_f64() * 1e6);
        }
        let Self { publisher, mut subscriber } = self;
        let frame = frame.clone();
        let began = Instant::now();
        let sender = tokio::spawn(async move {
            let mut sent = 0;
            while sent < BURST_FRAMES {
                match publisher.publish(0, frame.clone()) {
                    Offer::Sent => sent += 1,
                    _ => tokio::task::yield_now().await,
                }
            }
            publisher
        });
        for _ in 0..BURST_FRAMES {
            subscriber.next().await.ok_or("no frame")??;
        }
        let rate = BURST_FRAMES as f64 / began.elapsed().as_secs_f64();
        drop(sender.await?);
        Ok((latencies_us, rate))
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Outcome<()> {
    let arguments: Vec<usize> =
        std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let argument = |at: usize, default: usize| arguments.get(at).copied().unwrap_or(default);
    let (rounds, sensors, subcarriers) = (argument(0, 5), argument(1, 10), argument(2, 100));
    let received = CMatrix::from_fn(sensors, subcarriers, |m, f| Complex64::new(m as f64, f as f64));
    let frame = EchoFrame::new(FrameId { run: 1, frame: 0 }, 0, 0, &received);
    let (mut latencies_us, mut rates) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 0..rounds {
        for turn in [0, 1] {
            let which = (turn + round) % 2;
            let publication = Publication { run: 1, nodes: 1, site_sha256: HASH, sensors, subcarriers };
            let link = match which {
                0 => Link::zeromq(&publication).await?,
                _ => Link::grpc(&publication).await?,
            };
            let (times_us, rate) = link.measure(&frame).await?;
            latencies_us[which].extend(times_us);
            rates[which].push(rate);
        }
    }
    println!("frames of {sensors} x {subcarriers}: {} bytes", EchoFrame::bytes(sensors, subcarriers));
    println!("transport  p50 us  p99 us  frames/s  MB/s (medians of {rounds} rounds)");
    for (name, which) in [("zeromq", 0), ("grpc", 1)] {
        let (times_us, rates) = (&mut latencies_us[which], &mut rates[which]);
        times_us.sort_by(f64::total_cmp);
        rates.sort_by(f64::total_cmp);
        let at = |share: f64| times_us[((times_us.len() - 1) as f64 * share) as usize];
        let rate = rates[rates.len() / 2];
        let megabytes = rate * EchoFrame::bytes(sensors, subcarriers) as f64 / 1e6;
        println!("{name:9} {:7.0} {:7.0} {rate:9.0} {megabytes:5.0}", at(0.5), at(0.99));
    }
    Ok(())
}
