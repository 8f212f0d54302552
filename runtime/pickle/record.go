package pickle

// object writes the inert form of an instance, or what a known class stands for.
func (r *renderer) object(v val) error {
	o := &r.objects[v.bits]
	switch {
	case o.hasValue:
		return r.value(o.value)
	case o.known == knownFields && o.state.kind() == kindDict:
		return r.value(o.state)
	case o.known != unknown && o.known != knownFields:
		return r.fail("is of type %s, which has no %s form", r.typeName(v), r.format())
	}
	if err := r.enter(v); err != nil {
		return err
	}
	err := r.record(o)
	r.leave()
	return err
}

// The members of the inert form of an instance.
var (
	nameClass  = []byte("$class")
	nameArgs   = []byte("args")
	nameKwargs = []byte("kwargs")
	nameState  = []byte("state")
	nameItems  = []byte("items")
	namePairs  = []byte("pairs")
)

// record writes {"$class", "args", "kwargs", "state", "items", "pairs"}; what an instance
// does not have is left out, except the state.
func (r *renderer) record(o *object) error {
	hasArgs := o.args.kind() == kindTuple && len(r.items(o.args)) > 0
	hasKwargs := o.kwargs.kind() != kindNone
	members := 2
	for _, has := range []bool{hasArgs, hasKwargs, len(o.items) > 0, len(o.pairs) > 0} {
		if has {
			members++
		}
	}
	r.open(members)
	r.name(true, nameClass)
	r.string(r.globals[o.class].name)
	if hasArgs {
		if err := r.member(false, nameArgs, o.args); err != nil {
			return err
		}
	}
	if hasKwargs {
		if err := r.member(false, nameKwargs, o.kwargs); err != nil {
			return err
		}
	}
	if err := r.member(false, nameState, o.state); err != nil {
		return err
	}
	if len(o.items) > 0 {
		r.name(false, nameItems)
		r.path[len(r.path)-1].name = nameItems
		if err := r.listed(o.items, 1); err != nil {
			return err
		}
	}
	if len(o.pairs) > 0 {
		r.name(false, namePairs)
		r.path[len(r.path)-1].name = namePairs
		if err := r.listed(o.pairs, 2); err != nil {
			return err
		}
	}
	r.close()
	return nil
}

// listed writes the contents of an object: an array of values, or of pairs.
func (r *renderer) listed(items []val, size int) error {
	if err := r.enter(val{}); err != nil {
		return err
	}
	defer r.leave()
	if size == 1 {
		return r.array(items)
	}
	if r.binary {
		r.out = appendHeader(r.out, len(items)/2, 0x90, 15, 0xdc)
	} else {
		r.out = append(r.out, '[')
	}
	for i := 0; i < len(items); i += 2 {
		if i > 0 && !r.binary {
			r.out = append(r.out, ',')
		}
		r.path[len(r.path)-1].index = i / 2
		if err := r.enter(val{}); err != nil {
			return err
		}
		if err := r.array(items[i : i+2]); err != nil {
			return err
		}
		r.leave()
	}
	if !r.binary {
		r.out = append(r.out, ']')
	}
	return nil
}

// typeName names a value's type for an error.
func (r *renderer) typeName(v val) string {
	switch v.kind() {
	case kindNone:
		return "NoneType"
	case kindBool:
		return "bool"
	case kindFloat:
		return "float"
	case kindBytes:
		return "bytes"
	case kindList:
		return "list"
	case kindTuple:
		return "tuple"
	case kindSet:
		return "set"
	case kindDict:
		return "dict"
	case kindObject:
		switch o := r.objects[v.bits]; o.known {
		case knownNDArray:
			return "numpy.ndarray"
		case knownScalar:
			return "numpy.generic"
		default:
			return r.globals[o.class].name
		}
	default:
		return "type"
	}
}
