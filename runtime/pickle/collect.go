package pickle

func (p *parser) empty(op byte) error {
	k := kindTuple
	switch op {
	case opEmptyList:
		k = kindList
	case opEmptyDict:
		k = kindDict
	case opEmptySet:
		k = kindSet
	}
	return p.pushed(p.newList(k, nil))
}

// collect makes a container of the values on the stack.
func (p *parser) collect(op byte) error {
	var items []val
	var err error
	k := kindTuple
	switch op {
	case opTuple1:
		items, err = p.popN(1)
	case opTuple2:
		items, err = p.popN(2)
	case opTuple3:
		items, err = p.popN(3)
	default:
		items, err = p.popMark()
		switch op {
		case opList:
			k = kindList
		case opDict:
			k = kindDict
		case opFrozenSet:
			k = kindSet
		}
	}
	if err != nil {
		return err
	}
	if k == kindDict && len(items)%2 != 0 {
		return p.malformed("a key without a value")
	}
	return p.pushed(p.newList(k, items))
}

// fill puts values into the container below them on the stack.
func (p *parser) fill(op byte) error {
	var items []val
	var err error
	switch op {
	case opAppend:
		items, err = p.popN(1)
	case opSetItem:
		items, err = p.popN(2)
	default:
		items, err = p.popMark()
	}
	if err != nil {
		return err
	}
	target, err := p.top()
	if err != nil {
		return err
	}
	inPairs := op == opSetItem || op == opSetItems
	if inPairs && len(items)%2 != 0 {
		return p.malformed("a key without a value")
	}
	list := p.receiver(target, op)
	if list == nil {
		return p.malformed("values are put into something that takes none")
	}
	*list, err = p.grow(*list, items)
	return err
}

// receiver returns what the values of an opcode are appended to, nil if target takes none.
func (p *parser) receiver(target val, op byte) *[]val {
	switch k := target.kind(); op {
	case opSetItem, opSetItems:
		if k == kindDict {
			return &p.lists[target.bits]
		}
		if k == kindObject {
			return &p.objects[target.bits].pairs
		}
	default:
		if (op == opAddItems && k == kindSet) || (op != opAddItems && k == kindList) {
			return &p.lists[target.bits]
		}
		if k == kindObject {
			return &p.objects[target.bits].items
		}
	}
	return nil
}
