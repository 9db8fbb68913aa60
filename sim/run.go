package sim

// Run simulates the requests (sorted by arrival or not; equal arrivals keep
// their order) on one engine until all have left or cfg.StopUs. obs may be nil.
// Errors: a bad configuration or request, or a prediction that is NaN or infinite.
func Run(cfg Config, reqs []Request, obs Observer) (*Result, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	e, err := newEngine(&cfg, reqs, obs)
	if err != nil {
		return nil, err
	}
	if err := e.run(); err != nil {
		return nil, err
	}
	return e.result(), nil
}
