//! A real browser for tests: headless Chromium, driven over the WebDriver protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{PATIENCE, eventually, free_address, skipped};

/// Whether a browser and its driver are installed.
pub fn available() -> bool {
    let runs =
        |name: &str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    runs("chromedriver") && runs("chromium")
}

/// Whether there is no browser; in this case the test is reported as skipped.
pub fn skip_without_browser(test: &str) -> bool {
    let missing = !available();
    if missing {
        skipped(test, "it needs chromium and chromedriver");
    }
    missing
}

/// Path of a screenshot, next to the test executables.
pub fn artefact(name: &str) -> PathBuf {
    let executable = std::env::current_exe().expect("a path");
    let directory = executable.ancestors().nth(2).expect("a target directory").join("screenshots");
    std::fs::create_dir_all(&directory).expect("a directory");
    directory.join(name)
}

/// One browser window. It is closed when it is dropped.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
}

impl Browser {
    pub fn open(width: u32, height: u32) -> Self {
        let address = free_address();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={}", address.port()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut browser = Self { driver, address, session: String::new() };
        eventually("chromedriver answers", || TcpStream::connect(address).ok());
        let size = format!("--window-size={width},{height}");
        let arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", &size];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let answer = browser.ask("POST", "/session", Some(&capabilities));
        browser.session = answer["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    /// Emulates the screen of a phone.
    pub fn become_phone(&self) {
        let size = json!({"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true});
        self.develop("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Emulates a screen of this size.
    pub fn become_screen(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.develop("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Files that pages offer are written to this directory.
    pub fn download_to(&self, directory: &Path) {
        let path = directory.to_str().expect("a path");
        self.develop("Browser.setDownloadBehavior", &json!({"behavior": "allow", "downloadPath": path}));
    }

    /// Sets the preferred colour scheme, `dark` or `light`.
    pub fn prefer(&self, scheme: &str) {
        let feature = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.develop("Emulation.setEmulatedMedia", &feature);
    }

    fn develop(&self, name: &str, parameters: &Value) {
        self.command("POST", "goog/cdp/execute", Some(&json!({"cmd": name, "params": parameters})));
    }

    /// Presses and releases a key, as WebDriver names it: a character, or a code such as `\u{e004}` for Tab.
    pub fn press(&self, key: &str) {
        let strokes = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        self.act(&json!({"type": "key", "id": "keyboard", "actions": strokes}));
    }

    /// Moves the mouse to the middle of an element.
    pub fn point_at(&self, selector: &str) {
        let [x, y] = self.middle(selector);
        self.act(
            &json!({"type": "pointer", "id": "mouse", "actions": [{"type": "pointerMove", "x": x, "y": y}]}),
        );
    }

    /// Moves the mouse to a place in the window.
    pub fn point_to(&self, x: i32, y: i32) {
        self.act(
            &json!({"type": "pointer", "id": "mouse", "actions": [{"type": "pointerMove", "x": x, "y": y}]}),
        );
    }

    /// Clicks an element as a user does.
    pub fn click(&self, selector: &str) {
        let [x, y] = self.middle(selector);
        self.act(&json!({"type": "pointer", "id": "mouse", "actions": [
            {"type": "pointerMove", "x": x, "y": y},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]}));
    }

    /// Drags with the mouse from the middle of an element, by that many pixels.
    pub fn drag(&self, selector: &str, right: i32, down: i32) {
        let [x, y] = self.middle(selector);
        self.act(&json!({"type": "pointer", "id": "mouse", "actions": [
            {"type": "pointerMove", "x": x, "y": y},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerMove", "x": x + right, "y": y + down, "duration": 50},
            {"type": "pointerUp", "button": 0},
        ]}));
    }

    /// Turns the mouse wheel over the middle of an element.
    pub fn wheel(&self, selector: &str, down: i32) {
        let [x, y] = self.middle(selector);
        self.wheel_at(x, y, down);
    }

    /// Turns the mouse wheel over a place in the window.
    pub fn wheel_at(&self, x: i32, y: i32, down: i32) {
        let turn = json!([{"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": down}]);
        self.act(&json!({"type": "wheel", "id": "wheel", "actions": turn}));
    }

    fn act(&self, device: &Value) {
        self.command("POST", "actions", Some(&json!({"actions": [device]})));
    }

    /// The middle of an element, once it stays where it is.
    fn middle(&self, selector: &str) -> [i32; 2] {
        let mut before = None;
        eventually(selector, || {
            let here = self.middle_now(selector);
            (before.replace(here) == Some(here)).then_some(here)
        })
        .0
    }

    fn middle_now(&self, selector: &str) -> [i32; 2] {
        let script = format!(
            "const e = document.querySelector('{selector}'); e.scrollIntoView({{block: 'nearest'}}); \
             const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]"
        );
        let found = self.run(&script);
        [0, 1].map(|axis| found[axis].as_f64().expect("a place") as i32)
    }

    pub fn go(&self, url: &str) {
        self.command("POST", "url", Some(&json!({ "url": url })));
    }

    /// Runs a script and returns its result.
    pub fn run(&self, script: &str) -> Value {
        self.command("POST", "execute/sync", Some(&json!({"script": script, "args": []})))
    }

    /// Runs a script that calls its last argument with the result.
    pub fn run_async(&self, script: &str) -> Value {
        self.command("POST", "execute/async", Some(&json!({"script": script, "args": []})))
    }

    /// Runs a script until it returns true; returns the elapsed time.
    pub fn until(&self, script: &str) -> Duration {
        let began = Instant::now();
        eventually(script, || (self.run(script) == Value::Bool(true)).then_some(()));
        began.elapsed()
    }

    /// Errors on the console since the last call.
    pub fn console_errors(&self) -> Vec<String> {
        let entries = self.command("POST", "se/log", Some(&json!({"type": "browser"})));
        let severe = |entry: &&Value| entry["level"] == "SEVERE";
        entries
            .as_array()
            .into_iter()
            .flatten()
            .filter(severe)
            .map(|entry| entry["message"].to_string())
            .collect()
    }

    pub fn screenshot(&self, path: &Path) {
        let encoded = self.command("GET", "screenshot", None);
        std::fs::write(path, base64(encoded.as_str().expect("a picture"))).expect("written");
    }

    fn command(&self, method: &str, name: &str, body: Option<&Value>) -> Value {
        self.ask(method, &format!("/session/{}/{name}", self.session), body)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut stream = TcpStream::connect(self.address).expect("chromedriver answers");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .expect("sent");
        let body = read_body(BufReader::new(stream));
        let answer: Value =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
        let value = answer["value"].clone();
        assert!(value["error"].is_null(), "{path}: {value}");
        value
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Must not panic, because it also runs after a failure. Deleting the session closes the browser.
        if let Ok(mut stream) = TcpStream::connect(self.address)
            && !self.session.is_empty()
        {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ =
                write!(stream, "DELETE /session/{} HTTP/1.1\r\nhost: {}\r\n\r\n", self.session, self.address);
            let _ = stream.read(&mut [0]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The body of a response, by its length, because the driver does not close the connection.
fn read_body(mut answer: impl BufRead) -> String {
    let mut length = 0;
    loop {
        let mut line = String::new();
        answer.read_line(&mut line).expect("an answer");
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().expect("a length");
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    answer.read_exact(&mut body).expect("a body");
    String::from_utf8_lossy(&body).into_owned()
}

fn base64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(value).map(u32::from).collect();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let bits = group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}
