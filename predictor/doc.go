// Package predictor trains latency predictors and writes what llm-d's latency predictor and XGBoost load: forests as
// XGBoost model documents, and training rows as batches of its bulk endpoint.
package predictor
