//! Whether the machine itself kept time while something was measured on it.
//!
//! A thread beside the measurement sleeps and sends a byte over a bare loopback connection and back. No code of
//! the relay takes part: if these come late, so does everything.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Measurements at most.
const ATTEMPTS: usize = 4;

/// A machine whose 99 % quantile is over this has stalled. Idle, it is near 0.5 ms.
const STALLED_MS: f64 = 1.0;

const NAP: Duration = Duration::from_millis(4);

struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<f64>>,
}

impl Watch {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        for stream in [&near, &far] {
            stream.set_nodelay(true).unwrap();
        }
        std::thread::spawn(move || {
            let mut byte = [0];
            while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut late_ms, mut byte) = (Vec::new(), [0]);
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                std::thread::sleep(NAP);
                near.write_all(&byte).unwrap();
                near.read_exact(&mut byte).unwrap();
                late_ms.push((began.elapsed() - NAP).as_secs_f64() * 1e3);
            }
            late_ms
        });
        Self { stop, thread }
    }

    /// How late the machine was, 99 % quantile.
    fn late_ms(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        let mut late_ms = self.thread.join().unwrap();
        late_ms.sort_by(f64::total_cmp);
        late_ms.get(late_ms.len() * 99 / 100).copied().unwrap_or(0.0)
    }
}

/// Measures, and fails with what `measure` finds wrong: at once if the machine kept time meanwhile; if it
/// stalled, the measurement is worth nothing and is made again, a few times. It must succeed in the end.
pub async fn measured<F: Future<Output = Result<(), String>>>(measure: impl Fn() -> F) {
    let mut wrong = Vec::new();
    for _ in 0..ATTEMPTS {
        let watch = Watch::start();
        let outcome = measure().await;
        let late_ms = watch.late_ms();
        println!("the machine itself: up to {late_ms:.2} ms late (99 %)");
        let Err(error) = outcome else { return };
        wrong.push(format!("{error} (machine {late_ms:.2} ms late)"));
        if late_ms <= STALLED_MS {
            break;
        }
        println!("measured again: {error}");
    }
    panic!("{}", wrong.join("; "));
}
