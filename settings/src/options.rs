//! Options of a process, each declared once.
//!
//! A process has one struct that derives [`clap::Args`]. A field is an option: its name is the key in a settings file, in
//! the environment (`HYLOC_<ROLE>_<KEY>`) and, with dashes, on the command line; its attributes are documentation, default and
//! check. [`Layered`] reads the layers, weakest first: defaults, file, environment, command line. Unknown keys are
//! refused in every layer, and an error names the origin of the value.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use config::{Environment, File, FileFormat, Map, Source, Value, ValueKind};

use crate::check::{address_or_none, host_name};

const CONFIG: &str = "config";
const PRINT_CONFIG: &str = "print_config";

/// The options of a process. All of them are optional or have a default, and none is a subcommand.
pub trait Options: Args + Clone {
    /// Name of the process in environment variables: `HYLOC_<ROLE>_<KEY>` and `HYLOC_CONFIG_<ROLE>`.
    const ROLE: &'static str;
}

/// An option whose value may be `none` or `auto`: unlike a plain `Option`, it has a default.
pub type OrNone<T> = Option<T>;

/// Addresses of metrics and health of a process without a page.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct EndpointOptions {
    /// Address of /metrics and /health; port 0 takes any free port, `none` serves nothing.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = address_or_none)]
    pub http_listen: OrNone<SocketAddr>,
    /// Address of gRPC health, or `none`.
    #[arg(long, value_name = "ADDRESS", default_value = "none", value_parser = address_or_none)]
    pub health_listen: OrNone<SocketAddr>,
    #[command(flatten)]
    pub names: HostNameOptions,
}

/// Host names of a process that serves HTTP.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct HostNameOptions {
    /// Host name that HTTP requests may address, besides IP addresses and localhost; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    pub http_name: Vec<String>,
}

/// Options read from all layers.
#[derive(Debug, Clone)]
pub struct Layered<T> {
    pub options: T,
    printed: Option<String>,
}

impl<T> Layered<T> {
    /// The options in force as TOML with the origin of each, if `--print-config` is given.
    pub fn printed(&self) -> Option<&str> {
        self.printed.as_deref()
    }
}

/// Options from flags only: neither a file nor the environment is read.
pub fn from_flags<T: Options>(flags: &[&str]) -> Result<T, clap::Error> {
    parse(flags.iter().map(|flag| (*flag).to_owned()).collect())
}

fn command<T: Options>() -> Command {
    T::augment_args(Command::new(T::ROLE).no_binary_name(true).disable_help_flag(true))
}

fn parse<T: Options>(flags: Vec<String>) -> Result<T, clap::Error> {
    T::from_arg_matches(&command::<T>().try_get_matches_from(flags)?)
}

impl<T: Options> Args for Layered<T> {
    fn augment_args(command: Command) -> Command {
        let role = T::ROLE.to_uppercase();
        let config = Arg::new(CONFIG)
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help(format!(
                "Settings file, TOML; HYLOC_{role}_KEY and flags override it [env: HYLOC_CONFIG_{role}]"
            ));
        let print = Arg::new(PRINT_CONFIG)
            .long("print-config")
            .action(ArgAction::SetTrue)
            .help("Print the settings in force as TOML, with the origin of each, and exit");
        T::augment_args(command.arg(config).arg(print))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Options> FromArgMatches for Layered<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let variable =
            || std::env::var_os(format!("HYLOC_CONFIG_{}", T::ROLE.to_uppercase())).map(PathBuf::from);
        let file = matches.get_one::<PathBuf>(CONFIG).cloned().or_else(variable);
        let text = file.as_deref().map(crate::read).transpose();
        let text = text.map_err(|error| clap::Error::raw(ErrorKind::Io, error))?;
        let refuse = |reason| clap::Error::raw(ErrorKind::ValueValidation, reason);
        let settings = settings::<T>(matches, file.zip(text)).map_err(refuse)?;
        let lines = || settings.iter().filter_map(Setting::line).collect::<Vec<_>>().join("\n");
        let printed = matches.get_flag(PRINT_CONFIG).then(lines);
        Ok(Self { options: parse(settings.iter().flat_map(Setting::flags).collect())?, printed })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Default,
    File(PathBuf),
    Environment(String),
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "{name}"),
            Self::CommandLine => write!(f, "command line"),
        }
    }
}

impl Origin {
    /// A key with its origin, for errors.
    fn key(&self, key: &str) -> String {
        match self {
            Self::Environment(name) => name.clone(),
            origin => format!("{origin}: {key}"),
        }
    }
}

/// An option with its values as text: several for a list, none if it is not set.
struct Setting {
    argument: Arg,
    values: Vec<String>,
    origin: Origin,
}

impl Setting {
    fn is_list(&self) -> bool {
        matches!(self.argument.get_action(), ArgAction::Append)
    }

    /// The command-line flags that set these values.
    fn flags(&self) -> Vec<String> {
        let long = self.argument.get_long().unwrap_or_default();
        let flag = |value: &String| match (self.argument.get_action(), value.as_str()) {
            (ArgAction::SetTrue, "true") => Some(format!("--{long}")),
            (ArgAction::SetTrue, _) => None,
            _ => Some(format!("--{long}={value}")),
        };
        self.values.iter().filter_map(flag).collect()
    }

    /// The line of a settings file, with the origin as a comment; none if the option is not set.
    fn line(&self) -> Option<String> {
        let literal = |text: &String| match text.parse::<toml::Value>() {
            Ok(value @ (toml::Value::Boolean(_) | toml::Value::Integer(_) | toml::Value::Float(_))) => value,
            _ => toml::Value::String(text.clone()),
        };
        let value = match (self.is_list(), self.values.as_slice()) {
            (true, all) => toml::Value::Array(all.iter().map(literal).collect()),
            (false, [one]) => literal(one),
            (false, _) => return None,
        };
        Some(format!("{} = {value} # {}", self.argument.get_id(), self.origin))
    }
}

type Keys = BTreeMap<String, (Vec<String>, Origin)>;

/// All options, each with the values of the strongest layer that sets it.
fn settings<T: Options>(
    matches: &ArgMatches,
    file: Option<(PathBuf, String)>,
) -> Result<Vec<Setting>, String> {
    let command = command::<T>();
    let mut keys = Keys::new();
    if let Some((path, text)) = file {
        keys.extend(keys_of_file(&path, &text)?);
    }
    keys.extend(environment(T::ROLE)?);
    let mut settings = Vec::new();
    for argument in command.get_arguments() {
        let (key, argument) = (argument.get_id().as_str(), argument.clone());
        let below = keys.remove(key);
        let setting = if matches.value_source(key) == Some(ValueSource::CommandLine) {
            let raw = matches.get_raw(key).into_iter().flatten();
            let values = raw.map(|value| value.to_string_lossy().into_owned()).collect();
            Setting { argument, values, origin: Origin::CommandLine }
        } else if let Some((values, origin)) = below {
            check::<T>(key, Setting { argument, values, origin })?
        } else {
            let defaults = argument.get_default_values().iter();
            let values = match argument.get_action() {
                ArgAction::SetTrue => vec!["false".into()],
                _ => defaults.map(|value| value.to_string_lossy().into_owned()).collect(),
            };
            Setting { argument, values, origin: Origin::Default }
        };
        settings.push(setting);
    }
    match keys.first_key_value() {
        Some((key, (_, origin))) => Err(format!("{origin}: there is no setting '{key}'")),
        None => Ok(settings),
    }
}

/// Checks a value from a file or the environment, so that the error names its origin.
fn check<T: Options>(key: &str, mut setting: Setting) -> Result<Setting, String> {
    if setting.is_list() && matches!(setting.origin, Origin::Environment(_)) {
        let split = |value: &String| value.split(',').map(|part| part.trim().to_owned()).collect::<Vec<_>>();
        setting.values = setting.values.iter().flat_map(split).filter(|part| !part.is_empty()).collect();
    }
    let shown = setting.values.join(", ");
    let refuse = |reason: &dyn fmt::Display| format!("{} = {shown}: {reason}", setting.origin.key(key));
    let is_switch = matches!(setting.argument.get_action(), ArgAction::SetTrue);
    if is_switch && !matches!(shown.as_str(), "true" | "false") {
        return Err(refuse(&"must be true or false"));
    }
    if !setting.is_list() && setting.values.len() != 1 {
        return Err(refuse(&"must be a single value"));
    }
    parse::<T>(setting.flags()).map_err(|error| match std::error::Error::source(&error) {
        Some(reason) => refuse(reason),
        None => refuse(&error.kind()),
    })?;
    Ok(setting)
}

fn keys_of_file(path: &Path, text: &str) -> Result<Keys, String> {
    let table = File::from_str(text, FileFormat::Toml).collect();
    let table = table.map_err(|error| format!("{}: {error}", path.display()))?;
    keys(table, |_| Origin::File(path.to_path_buf()))
}

/// Environment variables of a role that are not empty.
fn environment(role: &str) -> Result<Keys, String> {
    let prefix = format!("HYLOC_{}", role.to_uppercase());
    let variables = Environment::with_prefix(&prefix).prefix_separator("_").separator("__");
    let found = variables.ignore_empty(true).collect();
    let found = found.map_err(|error| format!("environment: {error}"))?;
    keys(found, |key| Origin::Environment(format!("{prefix}_{}", key.to_uppercase())))
}

fn keys(table: Map<String, Value>, origin: impl Fn(&str) -> Origin) -> Result<Keys, String> {
    let entry = |(key, value): (String, Value)| {
        let origin = origin(&key);
        let values = texts(value).ok_or_else(|| format!("{}: must not be a table", origin.key(&key)))?;
        Ok((key, (values, origin)))
    };
    table.into_iter().map(entry).collect()
}

/// The texts of a value or of a list of values.
fn texts(value: Value) -> Option<Vec<String>> {
    match value.kind {
        ValueKind::Table(_) | ValueKind::Nil => None,
        ValueKind::Array(items) => items.into_iter().map(|item| texts(item)?.pop()).collect(),
        single => Some(vec![single.to_string()]),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use clap::Parser;

    use super::*;
    use crate::check::{named, or_none, within};

    #[derive(Debug, Clone, PartialEq, Args)]
    struct Role {
        /// Frames a second.
        #[arg(long, default_value = "50", value_parser = within(1e-3, 1e5))]
        rate: f64,
        #[arg(long, default_value = "none", value_parser = or_none("a number", |text| text.parse::<u32>().ok()))]
        index: OrNone<u32>,
        #[arg(long, default_value = "auto", value_parser = named::<String>("any name"))]
        name: String,
        #[arg(long)]
        set: Vec<String>,
        #[arg(long)]
        allow_control: bool,
        #[arg(long)]
        record: Option<PathBuf>,
    }

    impl Options for Role {
        const ROLE: &'static str = "layers_test";
    }

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        layered: Layered<Role>,
    }

    fn file_of(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn load(text: &str, flags: &[&str]) -> Result<Layered<Role>, String> {
        let file = file_of(text);
        let config = format!("--config={}", file.path().display());
        let words = ["program", &config].into_iter().chain(flags.iter().copied());
        let shown = file.path().display().to_string();
        let program =
            Program::try_parse_from(words).map_err(|error| error.to_string().replace(&shown, "FILE"))?;
        Ok(program.layered)
    }

    #[test]
    fn flags_are_stronger_than_the_file_and_the_file_than_defaults() {
        let text = "rate = 7\nindex = 3\nset = ['a=1', 'b=[1, 2]']\nallow_control = true";
        let Layered { options, .. } = load(text, &["--rate", "8"]).unwrap();
        assert_eq!((options.rate, options.index, options.name.as_str()), (8.0, Some(3), "auto"));
        assert_eq!((options.set.len(), options.allow_control, options.record), (2, true, None));
        assert_eq!(from_flags::<Role>(&[]).unwrap(), load("", &[]).unwrap().options);
    }

    #[test]
    fn what_is_in_force_is_printed_with_its_origin() {
        let printed = load("rate = 7.5", &["--name=west", "--print-config"]).unwrap();
        let printed = printed.printed().unwrap().to_owned();
        let lines: Vec<&str> = printed.lines().collect();
        assert!(lines[0].starts_with("rate = 7.5 # /"), "{printed}");
        assert_eq!(lines[1], "index = \"none\" # default");
        assert_eq!(lines[2], "name = \"west\" # command line");
        assert_eq!(lines[3..], ["set = [] # default", "allow_control = false # default"]);
        // It is a settings file itself.
        assert_eq!(load(&printed, &[]).unwrap().options.rate, 7.5);
    }

    #[test]
    fn errors_name_the_origin_the_key_and_what_is_allowed() {
        let refused = |text: &str, flags: &[&str]| {
            let error = load(text, flags).unwrap_err();
            error.lines().next().unwrap().to_owned()
        };
        assert_eq!(refused("rate = 0", &[]), "error: FILE: rate = 0: must be between 0.001 and 100000");
        assert_eq!(refused("rte = 7", &[]), "error: FILE: there is no setting 'rte'");
        assert_eq!(refused("rate = [1, 2]", &[]), "error: FILE: rate = 1, 2: must be a single value");
        assert_eq!(refused("rate = { a = 1 }", &[]), "error: FILE: rate: must not be a table");
        assert_eq!(
            refused("allow_control = 7", &[]),
            "error: FILE: allow_control = 7: must be true or false"
        );
        assert!(refused("rate = ", &[]).starts_with("error: FILE: "));
        let flag = refused("", &["--index=first"]);
        assert!(
            flag.contains("invalid value 'first' for '--index <INDEX>': must be a number or none"),
            "{flag}"
        );
        let missing = Program::try_parse_from(["program", "--config=nowhere.toml"]).unwrap_err().to_string();
        assert!(missing.starts_with("error: cannot read nowhere.toml: "), "{missing}");
    }
}
