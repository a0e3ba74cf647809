//! The commands that convert the configuration of other rate limiters.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Args, Debug)]
pub(crate) struct ConvertArgs {
    #[command(subcommand)]
    pub(crate) from: ConvertCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ConvertCommand {
    /// Convert the application.yml of Spring Boot: Bucket4j or Spring Cloud Gateway
    ///
    /// It reads limits in custom properties (a section rate-limit with capacity, refill-tokens and refill-period), routes of
    /// Spring Cloud Gateway with RequestRateLimiter, filters of bucket4j-spring-boot-starter, and spring.data.redis. A converted limit
    /// is never looser. Java code is not read: the command assumes what a KeyResolver counts by from its name, and warns. A password
    /// becomes a variable.
    #[command(after_help = SPRING_EXAMPLES)]
    Spring(SpringArgs),
}

#[derive(Args, Debug)]
pub(crate) struct SpringArgs {
    /// The application.yml; `-` is standard input. Of several files, later ones override earlier ones, as with application-dev.yml
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Also read the documents for this profile (spring.config.activate.on-profile)
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
}

const SPRING_EXAMPLES: &str = "\
Exit status:
  0  the policy file is on standard output; warnings are on standard error
  2  an option or the file is invalid, or has no rate limits; every error is on standard error, with its position

Examples:
  ratewright convert spring application.yml > ratewright.yaml && ratewright check ratewright.yaml
  ratewright convert spring application.yml --profile production > ratewright.production.yaml
  ratewright convert spring application.yml application-dev.yml > ratewright.dev.yaml
  kubectl get configmap gateway -o jsonpath='{.data.application\\.yml}' | ratewright convert spring -";
