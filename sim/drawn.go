package sim

// This file runs a workload whose requests are made one at a time: only those inside the server are in memory.

// Drawn is a workload of N requests, which Next makes one after another. Their arrivals never
// decrease, and none follows another or is a further sample (Request.After, Loop, With).
type Drawn struct {
	N    int
	Next func() Request
}

// StreamDrawn does what Stream does, for requests that are drawn. It reports an invalid request when
// it would arrive.
func StreamDrawn(cfg Config, reqs Drawn, left func(i int, r *RequestResult) bool) (*Result, error) {
	d := &driver{src: &drawnSource{reqs: reqs}, onLeft: left}
	if err := d.start(cfg, nil); err != nil {
		return nil, err
	}
	return d.run()
}

// drawnSource is the source of requests that are drawn.
type drawnSource struct {
	reqs  Drawn
	taken int      // number of requests taken
	ahead *Request // the request that take returns next; nil: not drawn yet
}

// Next returns the arrival of the next request, us; false if none is left.
func (s *drawnSource) Next() (atUs int64, ok bool) {
	if s.taken == s.reqs.N {
		return 0, false
	}
	if s.ahead == nil {
		r := s.reqs.Next()
		s.ahead = &r
	}
	return s.ahead.ArrivalUs, true
}

// take returns the request whose arrival Next has returned.
func (s *drawnSource) take() (i int, r *Request, err error) {
	i = s.taken
	r = s.ahead
	s.taken++
	s.ahead = nil
	return i, r, r.checkRequest(i, s.reqs.N)
}

// Left does nothing, because no request waits for another.
func (s *drawnSource) Left(int, int64, func(int, int64, bool)) {}

// unsent draws the rest of the requests and calls each for them.
func (s *drawnSource) unsent(each func(i int, r *Request) bool) error {
	for {
		if _, ok := s.Next(); !ok {
			return nil
		}
		i, r, err := s.take()
		if err != nil || !each(i, r) {
			return err
		}
	}
}
