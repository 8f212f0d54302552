package pickle

import (
	"fmt"
	"unicode/utf8"
)

// instance does the opcodes that in CPython import, call and build.
func (p *parser) instance(op byte) error {
	switch op {
	case opGlobal:
		class, err := p.globalLines()
		return p.pushed(class, err)
	case opStackGlobal:
		names, err := p.popN(2)
		if err != nil {
			return err
		}
		if names[0].kind() != kindStr || names[1].kind() != kindStr {
			return p.malformed("a class name that is no string")
		}
		return p.pushed(p.newGlobal(p.text(names[0]), p.text(names[1])))
	case opReduce, opNewObj:
		pair, err := p.popN(2)
		if err != nil {
			return err
		}
		return p.call(pair[0], pair[1], val{})
	case opNewObjEx:
		three, err := p.popN(3)
		if err != nil {
			return err
		}
		return p.call(three[0], three[1], three[2])
	case opInst, opObj:
		return p.oldInstance(op)
	}
	return p.build()
}

// oldInstance does INST and OBJ, whose arguments follow a mark.
func (p *parser) oldInstance(op byte) error {
	var class val
	var err error
	if op == opInst {
		if class, err = p.globalLines(); err != nil {
			return err
		}
	}
	items, err := p.popMark()
	if err != nil {
		return err
	}
	if op == opObj {
		if len(items) == 0 {
			return p.malformed("an instance without a class")
		}
		class, items = items[0], items[1:]
	}
	args, err := p.newList(kindTuple, items)
	if err != nil {
		return err
	}
	return p.call(class, args, val{})
}

func (p *parser) globalLines() (val, error) {
	module, err := p.readLine()
	if err != nil {
		return val{}, err
	}
	name, err := p.readLine()
	if err != nil {
		return val{}, err
	}
	if !utf8.Valid(module) || !utf8.Valid(name) {
		return val{}, p.malformed("a class name is not UTF-8")
	}
	return p.newGlobal(module, name)
}

func (p *parser) newGlobal(module, name []byte) (val, error) {
	if len(module) > maxNameBytes || len(name) > maxNameBytes {
		return val{}, fmt.Errorf("%w: a class name of more than %d bytes", ErrTooLarge, maxNameBytes)
	}
	full := string(module)
	if current, ok := python2Modules[full]; ok {
		full = current
	}
	full += "." + string(name)
	if err := p.charge(sizeGlobal + len(full)); err != nil {
		return val{}, err
	}
	p.globals = append(p.globals, global{name: full, known: lookup(full)})
	return val{uint64(kindGlobal), uint64(len(p.globals) - 1)}, nil
}

// call pushes what class(*args, **kwargs) stands for.
func (p *parser) call(class, args, kwargs val) error {
	if class.kind() != kindGlobal {
		return fmt.Errorf("%w: the pickle calls something that is not a class or function with a name", ErrNoForm)
	}
	if args.kind() != kindTuple {
		return p.malformed("arguments that are no tuple")
	}
	if kwargs.kind() != kindNone {
		if kwargs.kind() != kindDict {
			return p.malformed("keyword arguments that are no dictionary")
		}
		if len(p.items(kwargs)) == 0 {
			kwargs = val{}
		}
	}
	return p.pushed(p.construct(uint32(class.bits), args, kwargs))
}

// newObject makes the record of an instance.
func (p *parser) newObject(class uint32, args, kwargs val) (val, error) {
	if err := p.charge(sizeObject); err != nil {
		return val{}, err
	}
	p.objects = append(p.objects, object{class: class, known: p.globals[class].known, args: args, kwargs: kwargs})
	return val{uint64(kindObject), uint64(len(p.objects) - 1)}, nil
}

// construct returns what a call stands for: a plain value or an object.
func (p *parser) construct(class uint32, args, kwargs val) (val, error) {
	g, a := p.globals[class], p.items(args)
	if kwargs.kind() != kindNone && g.known != unknown && g.known != knownRefused {
		return val{}, p.unusual(g)
	}
	switch g.known {
	case knownReconstructor, knownNewObj, knownNewObjEx:
		return p.indirect(g, a)
	case knownGetattr:
		if len(a) == 2 && a[0].kind() == kindGlobal && a[1].kind() == kindStr {
			return p.newGlobal([]byte(p.globals[a[0].bits].name), p.text(a[1]))
		}
	case knownEncode, knownBytes, knownBytearray:
		return p.makeBytes(g, a)
	case knownList, knownTuple, knownSet, knownDict, knownDefaultDict:
		return p.makeContainer(g, a)
	case knownDate, knownTime, knownDatetime:
		return p.makeTime(class, a)
	case knownDecimal:
		return p.makeDecimal(g, a)
	case knownPath:
		return p.makePath(g, a)
	case knownEnum:
		if len(a) == 1 && (a[0].kind() == kindInt || a[0].kind() == kindStr) {
			return a[0], nil
		}
		return val{}, p.unusual(g)
	case knownScalar:
		return p.makeScalar(class, args)
	default: // only a record
	}
	return p.newObject(class, args, kwargs)
}

// unusual is a known class or function called as no pickler calls it.
func (p *parser) unusual(g global) error {
	return p.malformed("a call of %s that no pickler writes", g.name)
}

// indirect is a call of a helper that creates an instance of the class in its arguments.
func (p *parser) indirect(g global, a []val) (val, error) {
	if len(a) == 0 || a[0].kind() != kindGlobal {
		return val{}, p.unusual(g)
	}
	class, rest := uint32(a[0].bits), a[1:]
	var args, kwargs val
	var err error
	switch g.known {
	case knownNewObjEx:
		if len(rest) != 2 || rest[0].kind() != kindTuple || rest[1].kind() != kindDict {
			return val{}, p.unusual(g)
		}
		args = rest[0]
		if len(p.items(rest[1])) > 0 {
			kwargs = rest[1]
		}
	case knownReconstructor:
		if len(rest) != 2 || rest[0].kind() != kindGlobal {
			return val{}, p.unusual(g)
		}
		if p.globals[rest[0].bits].name == "builtins.object" {
			rest = nil
		} else {
			rest = rest[1:] // the part that the built-in base class holds
		}
		args, err = p.newList(kindTuple, rest)
	default:
		args, err = p.newList(kindTuple, rest)
	}
	if err != nil {
		return val{}, err
	}
	if k := p.globals[class].known; k == knownReconstructor || k == knownNewObj || k == knownNewObjEx {
		return val{}, p.unusual(g) // would nest without end
	}
	return p.construct(class, args, kwargs)
}

// build does BUILD: the value below gets a state.
func (p *parser) build() error {
	state, err := p.pop()
	if err != nil {
		return err
	}
	target, err := p.top()
	if err != nil {
		return err
	}
	switch target.kind() {
	case kindDict: // attributes of an OrderedDict, which its JSON has not either
		return nil
	case kindObject:
		o := &p.objects[target.bits]
		o.state, o.hasState = state, true
		if o.known != knownUUID {
			return nil
		}
		o.value, err = p.makeUUID(state)
		o.hasValue = true
		return err
	default:
		return p.malformed("a state for something that has none")
	}
}
